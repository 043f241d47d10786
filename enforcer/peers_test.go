package enforcer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

func TestPodsReachTheirPeers(t *testing.T) {
	t.Parallel()
	w, _ := asksPeers(t)
	for _, test := range []struct {
		to    string
		proto policy.Protocol
		want  bool
	}{
		{"10.2.0.1:5432", policy.TCP, true}, {"10.2.0.2:5432", policy.TCP, true}, {"[2001:db8:2::1]:5432", policy.TCP, true},
		{"10.2.0.1:5433", policy.TCP, false}, {"10.2.0.1:5432", policy.UDP, false}, {"10.2.0.3:5432", policy.TCP, false},
		{"198.51.100.7:1", policy.UDP, true}, {"198.51.100.127:9", policy.UDP, true}, {"[2001:db8:7:9::1]:5", policy.UDP, true},
		{"198.51.100.128:1", policy.UDP, false}, {"198.51.100.7:10", policy.UDP, false}, {"[2001:db8:8::1]:5", policy.UDP, false},
		{"10.2.0.3:8080", policy.TCP, true}, {"[2001:db8:2::3]:8080", policy.TCP, true}, {"10.2.0.4:80", policy.TCP, true},
		{"10.2.0.3:80", policy.TCP, false}, {"10.2.0.4:8080", policy.TCP, false}, {"10.2.0.4:99", policy.UDP, false},
		{"10.1.0.5:1", policy.TCP, true}, {"[2001:db8:1::5]:1", policy.TCP, true},
	} {
		from := "10.1.0.5"
		if addrPort(test.to).Addr().Is6() {
			from = "2001:db8:1::5"
		}
		if got := w.reaches(from, test.to, test.proto); got != test.want {
			t.Errorf("%s by %s: %v", test.to, test.proto, got)
		}
	}
	if s := w.e.Status(); s.PeerSets != 6 || s.PeerEntries != 3+2+3 {
		t.Errorf("%d sets with %d entries", s.PeerSets, s.PeerEntries)
	}
}

// A rule for everywhere is one jump, whatever else is allowed.
func TestEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.netpols = append(w.netpols, netpol("np", "any", "tcp/80 db"))
	w.apply([]policy.Pod{pod("client", "10.1.0.5 2001:db8:1::5", "allow", "np"), pod("other", "10.1.0.6", "allow")}, pol("allow"))
	if !w.reaches("10.1.0.5", "192.0.2.1:7", policy.SCTP) || !w.reaches("2001:db8:1::5", "[2001:db8::1]:7", 58) || w.reaches("10.1.0.6", "192.0.2.1:7", policy.TCP) {
		t.Error("everywhere is not where it should be")
	}
	if sets := w.peerSets(); len(sets) != 0 {
		t.Errorf("sets %v for what one rule says", sets)
	}
}

// Pods with equal peers share one chain and the sets; one with others has its own.
func TestPeersAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.netpols = append(w.netpols, netpol("np", "tcp/80 db"), netpol("same", "tcp/80 db"), netpol("more", "tcp/81 db"))
	w.remote = append(w.remote, far("db", "10.2.0.1", "db"))
	w.apply([]policy.Pod{
		pod("a", "10.1.0.5", "allow", "np"), pod("b", "10.1.0.6", "allow", "same"), pod("c", "10.1.0.7", "allow", "np", "same"), pod("d", "10.1.0.8", "allow", "np", "more"),
		pod("e", "10.1.0.9", "allow"), pod("f", "10.1.0.10", "np"),
	}, pol("allow"))
	chains := map[string]int{}
	for _, p := range w.e.plan {
		if p.Peers != nil {
			chains[p.Peers.ID]++
		}
	}
	if len(chains) != 2 || len(w.peerSets()) != 2 {
		t.Errorf("chains %v, sets %v", chains, w.peerSets())
	}
}

// A snapshot in which only members of peers differ is written as their difference, and
// one in which nothing differs not at all.
func TestPeersChangeByDeltas(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	allow := pol("allow", "tcp/443 www.example.org")
	written := func() (out []string) {
		for _, step := range w.seams.written() {
			if !strings.HasPrefix(step, "list ") {
				out = append(out, step)
			}
		}
		return out
	}
	w.seams.forget(0, false)
	w.apply([]policy.Pod{client}, allow)
	if got := written(); len(got) != 0 {
		t.Errorf("nothing changed: %v", got)
	}
	db := peerSetName(policy.Peer{Kind: policy.PeerPods, Key: w.snap.PeerSets[0].Key}, 4)
	w.remote[0] = far("db1", "10.2.0.9 2001:db8:2::1", "db")
	w.seams.forget(0, false)
	var changes []string
	w.seams.after = func(int, string) {
		for line := range strings.Lines(w.inet.LastTransaction.String()) {
			if strings.Contains(line, db) {
				changes = append(changes, strings.TrimSpace(line))
			}
		}
	}
	w.apply([]policy.Pod{client}, allow)
	w.seams.after = nil
	if diff := cmp.Diff([]string{"add element inet namegate " + db + " { 10.2.0.9 }", "delete element inet namegate " + db + " { 10.2.0.1 }"}, slices.Compact(changes)); diff != "" {
		t.Errorf("one pod has another address (-want +got):\n%s", diff)
	}
	for _, step := range written() {
		if step != "nft inet" && !strings.HasPrefix(step, "mark ") {
			t.Errorf("one pod has another address, and yet: %s", step)
		}
	}
	if w.reaches("10.1.0.5", "10.2.0.1:5432", policy.TCP) || !w.reaches("10.1.0.5", "10.2.0.9:5432", policy.TCP) {
		t.Error("the set is not what the snapshot says")
	}
	w.netpols = nil
	w.apply([]policy.Pod{client}, allow)
	if got := w.peerSets(); len(got) != 0 || w.reaches("10.1.0.5", "10.2.0.9:5432", policy.TCP) {
		t.Errorf("sets %v are left of no NetworkPolicy", got)
	}
}

// TestALostPeerIsTheOwnPodsAlone: a connection is not judged because another pod lost its
// peer. The grant that allowed it may have ended and be forgotten.
func TestALostPeerIsTheOwnPodsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pods := []policy.Pod{pod("first", "10.1.0.5", "allow", "np-a"), pod("second", "10.1.0.6", "allow", "np-b")}
	w.netpols = []*networkingv1.NetworkPolicy{netpol("np-a", "tcp/80 a"), netpol("np-b", "tcp/80 b")}
	w.remote = []*policy.Pod{far("one", "10.2.0.1", "a"), far("two", "10.2.0.2", "b")}
	allow := pol("allow", "tcp/443 www.example.org")
	w.apply(pods, allow)
	lost, others, own := flow("10.1.0.5:1", "10.2.0.1:80"), flow("10.1.0.5:2", "10.2.0.2:80"), flow("10.1.0.6:1", "10.2.0.2:80")
	for _, f := range []conntrack.Flow{lost, others, own} {
		w.flows.Track(f)
	}
	w.remote = []*policy.Pod{far("one", "10.2.0.1", "c"), far("two", "10.2.0.2", "c")}
	w.apply(pods, allow)
	w.clock.Pass(packetGrace)
	w.recheck()
	if w.admitted(lost) || w.admitted(own) {
		t.Error("a connection to a lost peer stays admitted")
	}
	if !w.admitted(others) {
		t.Error("a pod's connection is cut because another pod lost a peer")
	}
}
