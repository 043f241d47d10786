package enforcer

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestOpenedOnTheWay: what a pod opens by an answer that leaves before the pod is
// selected has its mark from its first packet, so that no reply of it is cut when the
// pod becomes selected; and nothing else that it opens has.
func TestOpenedOnTheWay(t *testing.T) {
	t.Parallel()
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

// TestOpenedJustBeforeIsolation: a pod with ordered rules opens a connection between the
// listing of its connections and its isolation. No reply to it is answered before it is
// admitted.
func TestOpenedJustBeforeIsolation(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w := newNode(t)
		w.plane = plane
		w.restart()
		w.apply([]policy.Pod{pod("old", "10.1.0.2")})
		rule := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "cluster", DNSDenied: policy.Resolve}
		rule.ID = rule.NewID()
		young := pod("young", "10.1.0.3")
		view := &policy.View{Pod: young, Rules: policytest.Rules(rule), Index: policy.NewIndex(nil, 0), Cluster: []*policy.Index{policy.NewIndex([]*policy.Rule{rule}, 0)}}
		s := policy.NewSnapshot(policy.Snapshot{Number: 9, Views: []*policy.View{view}}, []policy.Pod{young}, map[netip.Addr]policy.PodRef{young.IPs[0]: young.PodRef})
		fatal.If(t, w.e.Prepare(context.Background(), s))
		late := flow("10.1.0.3:1001", "192.0.2.9:443")
		late.Mark = 0
		opened, isolated := false, false
		has := func(set string) bool { return strings.Contains(w.inet.Dump(), set+" { 10.1.0.3 }") }
		w.seams.before = func(step string) {
			if step == "nft inet" && !opened {
				opened = true
				w.flows.Track(late)
			}
		}
		w.seams.after = func(_ int, step string) {
			if !has("selected4") || w.admitted(late) {
				return
			}
			if isolated = true; !has("dropped4") {
				t.Errorf("after %s a reply is answered", step)
			}
		}
		fatal.If(t, w.e.Commit(context.Background()))
		if !isolated || !w.admitted(late) || has("dropped4") || !has("selected4") {
			t.Errorf("isolated before it is admitted %v, admitted %v, denied without an answer %v, selected %v", isolated, w.admitted(late), has("dropped4"), has("selected4"))
		}
	})
}
