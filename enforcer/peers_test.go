package enforcer

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
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
	diff.Error(t, []string{"add element inet namegate " + db + " { 10.2.0.9 }", "delete element inet namegate " + db + " { 10.2.0.1 }"}, slices.Compact(changes), "one pod has another address")
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

// A pod that is known only once it is selected may have had connections before.
func TestNewPodsPeerConnectionsAreAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remote = append(w.remote, far("db", "10.2.0.1", "db"))
	w.netpols = append(w.netpols, netpol("np", "tcp/80 db"))
	w.apply(nil, pol("allow"))
	to, service := flow("10.1.0.5:1", "10.2.0.1:80"), flow("10.1.0.5:2", "10.96.0.1:443")
	service.Peer = addrPort("10.2.0.1:80")
	other, elsewhere := flow("10.1.0.5:3", "10.2.0.1:81"), flow("10.1.0.5:4", "10.2.0.2:80")
	for _, f := range []conntrack.Flow{to, service, other, elsewhere} {
		f.Mark = 0x2000
		w.flows.Track(f)
	}
	w.apply([]policy.Pod{pod("client", "10.1.0.5", "allow", "np")}, pol("allow"))
	if !w.admitted(to) || !w.admitted(service) || w.admitted(other) || w.admitted(elsewhere) {
		t.Errorf("admitted: to a peer %v, by its Service %v, to another port %v, to a stranger %v", w.admitted(to), w.admitted(service), w.admitted(other), w.admitted(elsewhere))
	}
}

// The peers of coming pods are there before the chains ask, and those of going ones
// until no chain asks any more. What both snapshots
// have is never away.
func TestPeersBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	closed := ""
	w.seams.before = func(step string) {
		if closed == "" && !w.reaches("10.1.0.5", "10.2.0.2:5432", policy.TCP) {
			closed = step
		}
	}
	w.remote = append(slices.Clone(w.remote[1:]), far("db9", "10.2.0.9", "db"))
	w.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/5432 db", "any db", "udp 10.9.0.0/16")}
	s := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(s)
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.9:5432", "10.2.0.9:1", "10.2.0.4:80"} {
		if !w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("between two snapshots %s is closed", to)
		}
	}
	w.commit()
	diff.Equal(t, "", closed, "what both allow is closed before")
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.4:80"} {
		if w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("%s is open", to)
		}
	}
}

// Who is behind the resolvers is known to the rule that notes who asks there, whether
// or not queries are led there while no agent is alive.
func TestBypassingPodsAreReported(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply([]policy.Pod{pod("client", "10.1.0.5", "allow")}, pol("allow"))
		if got := w.e.Status().Bypassing; len(got) != 0 {
			t.Errorf("bypassing %v", got)
		}
		w.learns(intercept.Network{Backends: []netip.AddrPort{addrPort("10.2.0.9:53")}})
		diff.Has(t, "add element inet namegate answering4 { 10.2.0.9 . 53 }", w.inet.Dump(), "fail closed", closed, "who is behind the resolver")
		tx := w.inet.NewTransaction()
		tx.Add(&knftables.Element{Set: "bypassing4", Key: []string{"10.1.0.5"}})
		tx.Add(&knftables.Element{Set: "dnsrefused4", Key: []string{"10.1.0.6"}})
		fatal.If(t, w.inet.Run(context.Background(), tx))
		if got := w.e.Status().Bypassing; len(got) != 1 || got[0] != addr("10.1.0.5") {
			t.Errorf("bypassing %v", got)
		}
		if got := w.e.Status().DroppedTCP; len(got) != 1 || got[0] != addr("10.1.0.6") {
			t.Errorf("dropped connections of %v", got)
		}
	}
}

// moved is asksPeers, with two connections open, and the snapshot after one of the
// databases got another address.
func moved(t *testing.T) (*world, *policy.Snapshot, policy.Pod) {
	w, client := asksPeers(t)
	for _, db := range []string{"10.2.0.1:5432", "10.2.0.2:5432"} {
		f := flow("10.1.0.5:"+db[len(db)-4:], db)
		f.Mark = DefaultMark
		w.flows.Track(f)
	}
	w.remote = slices.Clone(w.remote)
	w.remote[0] = far("db1", "10.2.0.9 2001:db8:2::1", "db")
	return w, w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org")), client
}

// Where only peers differ nothing is asked of the kernel but what differs: neither what
// other sets hold nor which interfaces there are.
func TestPeerChangesReadNothingElse(t *testing.T) {
	t.Parallel()
	w, next, _ := moved(t)
	w.seams.forget(0, false)
	fatal.If(t, w.rollOut(next))
	for _, step := range w.seams.written() {
		if strings.HasPrefix(step, "list ") {
			t.Errorf("%s", step)
		}
	}
	all := w.all()
	if !strings.Contains(all, "10.1.0.5:5432 10.2.0.1:5432 0x0") || !strings.Contains(all, "10.1.0.5:5432 10.2.0.2:5432 0x40") {
		t.Errorf("the connection to the address that went is not cut, or another is:\n%s", all)
	}
}

// A retry of the same snapshot repairs every fault on the way.
func TestFaultsOfPeersAlone(t *testing.T) {
	t.Parallel()
	w, next, _ := moved(t)
	fatal.If(t, w.rollOut(next))
	want := w.all()
	eachFault(t, 3, true, func() (*world, func() error) {
		w, next, _ = moved(t)
		return w, func() error { return w.rollOut(next) }
	}, func(f fault) { f.retried(func() error { return f.rollOut(next) }, want) })
}

// An unselected pod is known from its first snapshot on, also where its peers
// differ and no view does.
func TestPeersAndAnUnselectedPod(t *testing.T) {
	t.Parallel()
	w, _, client := moved(t)
	w.apply([]policy.Pod{client, pod("plain", "10.1.0.77")}, pol("allow", "tcp/443 www.example.org"))
	if !strings.Contains(w.dump(), "10.1.0.77") {
		t.Error("the tables do not know the pod that came together with a change of peers")
	}
	if w.reaches("10.1.0.5", "10.2.0.1:5432", policy.TCP) || !w.reaches("10.1.0.5", "10.2.0.9:5432", policy.TCP) {
		t.Error("the peers are not the snapshot's")
	}
}
