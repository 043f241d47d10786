package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// peerSetOfKind is the name of the first set of a kind.
func (w *world) peerSetOfKind(kind policy.PeerKind) string {
	w.t.Helper()
	for _, s := range w.snap.PeerSets {
		if s.Kind == kind {
			return xtables.PeerSetName(s.Peer, 4)
		}
	}
	w.t.Fatal("no such set")
	return ""
}

// peerRivals are what programs do to sets of peers, each by one write.
var peerRivals = map[string]func(w *world) error{
	"flushes pods":     func(w *world) error { return w.flush(w.peerSetOfKind(policy.PeerPods)) },
	"flushes networks": func(w *world) error { return w.flush(w.peerSetOfKind(policy.PeerNetworks)) },
	"flushes ports":    func(w *world) error { return w.flush(w.peerSetOfKind(policy.PeerPorts)) },
	"opens an address": func(w *world) error {
		return w.sets.Add(w.peerSetOfKind(policy.PeerPods), ipset.Entry{Addr: addr("203.0.113.9")})
	},
	"opens a network": func(w *world) error {
		return w.sets.Add(w.peerSetOfKind(policy.PeerNetworks), ipset.Entry{Addr: addr("203.0.113.0"), Bits: 24})
	},
	"destroys a set": func(w *world) error {
		name := w.peerSetOfKind(policy.PeerPods)
		w.sets.Refer(name, false)
		return w.sets.Destroy(name)
	},
}

// Suspect finds each, well before the periodic check, and it is repaired once.
func TestChangedPeerSetsAreDetectedImmediately(t *testing.T) {
	t.Parallel()
	for what, rival := range peerRivals {
		w, _ := asksPeers(t)
		w.repairs(what, func() error { return rival(w) })
	}
}

// One entry for another shows in no size; it is found when the set has its turn.
func TestExchangedPeersComeBack(t *testing.T) {
	t.Parallel()
	w, _ := asksPeers(t)
	before := sortedLines(w.dump())
	name := w.peerSetOfKind(policy.PeerPods)
	fatal.If(t, w.sets.Delete(name, ipset.Entry{Addr: addr("10.2.0.1")}))
	fatal.If(t, w.sets.Add(name, ipset.Entry{Addr: addr("203.0.113.9")}))
	w.reconcileMembers()
	if after := sortedLines(w.dump()); after != before {
		t.Errorf("after the repair:\n%s\nwant\n%s", after, before)
	}
}

// refusals is how often a set that the kernel refuses holds everything up.
const refusals = 3

// TestRefusedPeers: what the kernel does not take holds up a snapshot a few times, and
// then its peers alone are closed, until it takes them.
func TestRefusedPeers(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a set", "an entry"} {
		w := newWorld(t)
		client := pod("client", "10.1.0.5", "allow", "np")
		w.remote = append(w.remote, far("db", "10.2.0.1", "db"), far("web", "10.2.0.2", "web"))
		w.netpols = append(w.netpols, netpol("np", "tcp/80 db", "tcp/80 web", "udp"))
		s := w.compile([]policy.Pod{client}, pol("allow"))
		r := &w.seams.refuse
		if what == "a set" {
			r.set = xtables.PeerSetName(s.PeerSets[0].Peer, 4)
		} else {
			r.entry = "10.2.0.1"
		}
		refused := 0
		for w.e.Prepare(context.Background(), s) != nil {
			if refused++; refused > 2*refusals {
				t.Fatalf("%s is refused, and nothing goes on", what)
			}
		}
		if refused != refusals {
			t.Errorf("%s: refused %d times", what, refused)
		}
		fatal.If(t, w.rollOut(s))
		open := func() [3]bool {
			return [3]bool{w.reaches("10.1.0.5", "10.2.0.1:80", policy.TCP), w.reaches("10.1.0.5", "10.2.0.2:80", policy.TCP), w.reaches("10.1.0.5", "192.0.2.1:7", policy.UDP)}
		}
		if got := open(); got != [3]bool{false, true, true} {
			t.Errorf("%s is refused: open %v", what, got)
		}
		if len(w.wrongSets()) > 0 {
			t.Errorf("%s is refused, and taken for another program's doing", what)
		}
		r.set, r.entry = "", ""
		fatal.If(t, w.rollOut(s))
		if got := open(); got != [3]bool{true, true, true} {
			t.Errorf("%s is taken at last: open %v", what, got)
		}
	}
}

// TestPeersThatGoWhileOthersAreRefused: the connections to a peer that is lost are cut
// with the snapshot that says so, whatever becomes of the one that comes.
func TestPeersThatGoWhileOthersAreRefused(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"an entry is refused", "a program destroys the set"} {
		w := newWorld(t)
		client := pod("client", "10.1.0.5", "allow", "np")
		w.remote = append(w.remote, far("db1", "10.2.0.1", "db"), far("db2", "10.2.0.2", "db"))
		w.netpols = append(w.netpols, netpol("np", "tcp/80 db"))
		w.apply([]policy.Pod{client}, pol("allow"))
		lost, kept := flow("10.1.0.5:1", "10.2.0.1:80"), flow("10.1.0.5:2", "10.2.0.2:80")
		w.flows.Track(lost)
		w.flows.Track(kept)
		w.remote = []*policy.Pod{far("db2", "10.2.0.2", "db"), far("db3", "10.2.0.3", "db")}
		s := w.compile([]policy.Pod{client}, pol("allow"))
		r := &w.seams.refuse
		name := w.peerSetOfKind(policy.PeerPods)
		if what == "an entry is refused" {
			r.entry = "10.2.0.3"
		} else {
			fatal.If(t, w.sets.Destroy(name))
		}
		for tries := 0; w.rollOut(s) != nil; tries++ {
			if tries > 2*refusals {
				t.Fatalf("%s, and nothing goes on", what)
			}
		}
		if w.admitted(lost) || !w.admitted(kept) {
			t.Errorf("%s: to the lost peer admitted %v, to the other %v", what, w.admitted(lost), w.admitted(kept))
		}
		r.entry = ""
		w.reconcile()
		fatal.If(t, w.rollOut(s))
		for to, want := range map[string]bool{"10.2.0.1:80": false, "10.2.0.2:80": true, "10.2.0.3:80": true} {
			if w.reaches("10.1.0.5", to, policy.TCP) != want {
				t.Errorf("%s, and all is taken at last: open to %s %v", what, to, !want)
			}
		}
		if len(w.wrongSets()) > 0 {
			t.Errorf("%s, and the set is not what was written", what)
		}
	}
}

// TestSnapshotsThatNeverCameTakeNoRoom: of the sets of peers only those count that the
// snapshot in force and the coming one ask, and the others go.
func TestSnapshotsThatNeverCameTakeNoRoom(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{false, true} {
		w := newNode(t)
		w.maxPeerSets = 8 // two snapshots of two peers
		w.restart()
		client := pod("client", "10.1.0.5", "allow", "np")
		asking := func(i int) *policy.Snapshot {
			w.netpols = []*networkingv1.NetworkPolicy{netpol("np", fmt.Sprintf("tcp/80 198.51.%d.0/24", i), fmt.Sprintf("tcp/81 198.51.%d.128/25", i))}
			return w.compile([]policy.Pod{client}, pol("allow"))
		}
		fatal.If(t, w.rollOut(asking(0)))
		if follows {
			w.restart()
		}
		for i := range 5 {
			s := asking(i)
			if err := w.e.Prepare(context.Background(), s); err != nil {
				t.Errorf("follows %v, snapshot %d: %v", follows, i, err)
			}
			if got := len(w.peerNames()); got > 8 {
				t.Errorf("follows %v, snapshot %d: %d sets", follows, i, got)
			}
			flushed := xtables.PeerSetName(s.PeerSets[0].Peer, 4)
			entries, err := w.sets.List(flushed)
			if err == nil {
				err = w.flush(flushed)
			}
			fatal.If(t, err)
			if len(w.wrongSets()) == 0 {
				t.Errorf("follows %v, snapshot %d: what is held is not told", follows, i)
			}
			fatal.If(t, w.sets.Add(flushed, entries...))
		}
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
// until no chain asks any more: the seams refuse anything else. What both snapshots
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
	fatal.If(t, w.e.Prepare(context.Background(), s))
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.9:5432", "10.2.0.9:1", "10.2.0.4:80"} {
		if !w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("between two snapshots %s is closed", to)
		}
	}
	fatal.If(t, w.e.Commit(context.Background()))
	if closed != "" {
		t.Errorf("what both allow is closed before: %s", closed)
	}
	for _, to := range []string{"10.2.0.1:5432", "10.2.0.4:80"} {
		if w.reaches("10.1.0.5", to, policy.TCP) {
			t.Errorf("%s is open", to)
		}
	}
}

// No two peers have one name, whatever their keys are.
func TestPeerSetNames(t *testing.T) {
	t.Parallel()
	seen := map[string]policy.Peer{}
	for kind := policy.PeerPods; kind <= policy.PeerPorts; kind++ {
		for _, key := range []string{"", "a", "1a", "shop: app=db", "\x00", strings.Repeat("x", 500)} {
			for _, f := range ipVersions {
				p := policy.Peer{Kind: kind, Key: key}
				name := xtables.PeerSetName(p, f)
				if was, there := seen[name]; there || len(name) > ipset.NameLengthMax || !strings.HasPrefix(name, setPrefix(f)) {
					t.Errorf("%v is named %s, as %v is", p, name, was)
				}
				seen[name] = p
			}
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
		if _, err := w.e.intercept.SetNetwork(intercept.Network{Backends: []netip.AddrPort{addrPort("10.2.0.9:53")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.e.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(w.inet.Dump(), "add element inet namegate answering4 { 10.2.0.9 . 53 }") {
			t.Errorf("fail closed %v: nobody is behind the resolver:\n%s", closed, w.inet.Dump())
		}
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

// What the agent before this one wrote last into a set of peers is no other program's
// doing, while it is there and when it is gone, and does not stay.
func TestTheLastAgentsPeersGo(t *testing.T) {
	t.Parallel()
	for _, exchanges := range []bool{false, true} { // one entry for another: the size stays
		t.Run(fmt.Sprint("exchanges ", exchanges), func(t *testing.T) { lastAgentsPeersGo(t, exchanges) })
	}
}

func lastAgentsPeersGo(t *testing.T, exchanges bool) {
	w, client := asksPeers(t)
	name := w.peerSetOfKind(policy.PeerPods)
	_, end := overlap(t, w, func() { w.apply([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org")) })
	before := sortedLines(w.sets.Dump())
	fatal.If(t, w.sets.Add(name, ipset.Entry{Addr: addr("10.2.0.99")}))
	if len(w.wrongSets()) > 0 {
		t.Error("it is taken for another program's while the last agent is there")
	}
	if exchanges {
		fatal.If(t, w.sets.Delete(name, ipset.Entry{Addr: addr("10.2.0.1")}))
		w.compareMembers()
	} else {
		w.reconcile()
	}
	end()
	if w.awaits() {
		t.Fatal("the last agent is gone, and awaited")
	}
	if w.reaches("10.1.0.5", "10.2.0.99:5432", policy.TCP) {
		t.Error("what the last agent wrote is open")
	}
	if got := w.e.Status().Repairs; got != 0 {
		t.Errorf("%d repairs", got)
	}
	peersOnly := func(dump string) string {
		var out []string
		for line := range strings.Lines(dump) {
			if strings.Contains(line, "-p-") {
				out = append(out, line)
			}
		}
		return strings.Join(out, "")
	}
	if after := sortedLines(w.sets.Dump()); peersOnly(after) != peersOnly(before) {
		t.Errorf("sets:\n%s\nwant\n%s", after, before)
	}
}
