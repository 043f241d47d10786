package enforcer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

func TestPeersAreCounted(t *testing.T) {
	t.Parallel()
	w, _ := asksPeers(t)
	if s := w.e.Status(); s.PeerSets != 6 || s.PeerEntries != 3+2+3 {
		t.Errorf("%d sets with %d entries", s.PeerSets, s.PeerEntries)
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
