package enforcer

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestOpenedOnTheWay: what a pod opens by an answer that leaves before its further address is
// isolated has its mark from its first packet, so that no reply of it is cut then; and nothing else
// that it opens has.
func TestOpenedOnTheWay(t *testing.T) {
	t.Parallel()
	w, rules := newWorld(t), pol("web", "tcp/443 www.example.org")
	young := pod("young", "10.1.0.3", "web")
	w.apply([]policy.Pod{pod("young", "10.1.0.4", "web")}, rules)
	snap := w.compile([]policy.Pod{young}, rules)
	w.prepare(snap)
	fatal.If(t, w.answerBy(snap, young, "www.example.org", 60, "192.0.2.1"))
	var opened []*packet
	for _, to := range []string{"192.0.2.1", "192.0.2.9"} {
		p := &packet{Src: addr("10.1.0.3"), Dst: addr(to), Protocol: uint8(policy.TCP), DstPort: 443, Iface: "veth3"}
		if opened = append(opened, p); !w.passes(p) {
			t.Errorf("a pod that is not selected is denied %s", to)
		}
	}
	if granted, other := opened[0].Conn, opened[1].Conn; granted&DefaultMark == 0 || other&DefaultMark != 0 {
		t.Errorf("before the pod is selected: connection marks %#x of what is open to it, %#x of what is not", granted, other)
	}
	w.commit()
	for i, p := range opened {
		reply := &packet{Src: p.Dst, Dst: p.Src, Protocol: uint8(policy.TCP), Iface: "eth0", State: "ESTABLISHED", Reply: true, Conn: p.Conn}
		if got := w.passes(reply); got != (i == 0) {
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
		w := newWorldOn(t, plane)
		w.apply([]policy.Pod{pod("old", "10.1.0.2")})
		rule := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "cluster", DNSDenied: policy.Resolve}
		rule.ID = rule.NewID()
		young := pod("young", "10.1.0.3")
		view := &policy.View{Pod: young, Rules: policytest.Rules(rule), Index: policy.NewIndex(nil, 0), Cluster: []*policy.Index{policy.NewIndex([]*policy.Rule{rule}, 0)}}
		s := policy.NewSnapshot(policy.Snapshot{Number: 9, Views: []*policy.View{view}}, []policy.Pod{young}, map[netip.Addr]policy.PodRef{young.IPs[0]: young.PodRef})
		w.prepare(s)
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
		w.commit()
		if !isolated || !w.admitted(late) || has("dropped4") || !has("selected4") {
			t.Errorf("isolated before it is admitted %v, admitted %v, denied without an answer %v, selected %v", isolated, w.admitted(late), has("dropped4"), has("selected4"))
		}
	})
}
