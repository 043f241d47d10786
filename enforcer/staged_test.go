package enforcer

import (
	"context"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
)

// TestOpenedOnTheWay: what a pod opens by an answer that leaves before the pod is
// selected has its mark from its first packet, so that no reply of it is cut when the
// pod becomes selected; and nothing else that it opens has.
func TestOpenedOnTheWay(t *testing.T) {
	old := pod("old", "10.1.0.2", "web")
	for what, before := range map[string][]policy.Pod{
		"a pod that nobody knew":            {old},
		"a pod that had no address yet":     {old, pod("young", "", "web")},
		"a pod that gets a further address": {old, pod("young", "10.1.0.4", "web")},
	} {
		t.Run(what, func(t *testing.T) { openedOnTheWay(t, before, old) })
	}
}

func openedOnTheWay(t *testing.T, before []policy.Pod, old policy.Pod) {
	w := newWorld(t)
	young := pod("young", "10.1.0.3", "web")
	rules := pol("web", "tcp/443 www.example.org")
	w.apply(before, rules)
	snap := w.compile([]policy.Pod{old, young}, rules)
	fatal.If(t, w.e.Prepare(context.Background(), snap))
	fatal.If(t, w.e.grants.Grant(context.Background(), w.grants(snap, young.PodRef, "www.example.org", 60, "192.0.2.1")))
	opens := func(to string, port uint16) *packet {
		p := &packet{Src: addr("10.1.0.3"), Dst: addr(to), Protocol: uint8(policy.TCP), DstPort: port, Iface: "veth3"}
		if !w.passes(p) {
			t.Errorf("a pod that is not selected is denied %s:%d", to, port)
		}
		return p
	}
	granted, other := opens("192.0.2.1", 443), opens("192.0.2.9", 443)
	if granted.Conn&DefaultMark == 0 || other.Conn&DefaultMark != 0 {
		t.Errorf("before the pod is selected: connection marks %#x of what is open to it, %#x of what is not", granted.Conn, other.Conn)
	}
	fatal.If(t, w.e.Commit(context.Background()))
	for _, p := range []*packet{granted, other} {
		reply := &packet{Src: p.Dst, Dst: p.Src, Protocol: uint8(policy.TCP), Iface: "eth0", State: "ESTABLISHED", Reply: true, Conn: p.Conn}
		if got, want := w.passes(reply), p == granted; got != want {
			t.Errorf("a reply from %v to the pod, which is selected now: passes %v", p.Dst, got)
		}
	}
}
