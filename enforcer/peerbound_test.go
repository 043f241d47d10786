package enforcer

import (
	"testing"

	"github.com/namegate/namegate/policy"
)

// TestPeersLeaveRoomForSets: sets of peers are bounded; what finds no room is closed, all
// else goes on, and room that comes free is given.
func TestPeersLeaveRoomForSets(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	w.maxPeerSets = 4
	w.restart()
	greedy, other := pod("greedy", "10.1.0.5", "allow", "np"), pod("other", "10.1.0.6", "allow")
	pods, allow := []policy.Pod{greedy, other}, pol("allow", "tcp/443 www.example.org")
	for i, label := range []string{"a", "b", "c"} {
		w.remote = append(w.remote, far(label, []string{"10.2.0.1", "10.2.0.2", "10.2.0.3"}[i], label))
	}
	w.netpols = append(w.netpols, netpol("np", "tcp/80 a", "tcp/80 b", "tcp/80 c"))
	refused := 0
	for w.rollOut(w.compile(pods, allow)) != nil {
		if refused++; refused > refusals {
			t.Fatal("what has no room holds everything up")
		}
	}
	w.answer(other, "www.example.org", 60, "192.0.2.1")
	open, closed := "", ""
	for _, label := range []string{"a", "b", "c"} {
		to := map[string]string{"a": "10.2.0.1:80", "b": "10.2.0.2:80", "c": "10.2.0.3:80"}[label]
		if w.reaches("10.1.0.5", to, policy.TCP) {
			open += label
		} else {
			closed += label
		}
	}
	if len(open) != 2 || len(w.peerNames()) != 4 || !w.dials("10.1.0.6", "192.0.2.1", 443) {
		t.Errorf("peers %q are open, sets %v", open, w.peerNames())
	}
	w.netpols[0] = netpol("np", "tcp/80 "+closed)
	w.apply(pods, allow)
	w.reconcile()
	if to := map[string]string{"a": "10.2.0.1:80", "b": "10.2.0.2:80", "c": "10.2.0.3:80"}[closed]; !w.reaches("10.1.0.5", to, policy.TCP) {
		t.Errorf("peer %q has no set although there is room", closed)
	}
	if err := w.rollOut(w.compile(pods, allow)); err != nil || w.e.plane.Refused() {
		t.Errorf("afterwards: %v, refused %v", err, w.e.plane.Refused())
	}
}
