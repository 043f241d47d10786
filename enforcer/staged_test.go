package enforcer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
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
		diff.Equal(t, i == 0, w.passes(reply), "a reply passes to the pod, which is selected now, from", p.Dst)
	}
}

// ruled is a snapshot of one pod, 10.1.0.3, that has ordered rules.
func ruled(number uint64, peers []*policy.PeerSet, rules ...*policy.Rule) *policy.Snapshot {
	young := pod("young", "10.1.0.3")
	view := &policy.View{Pod: young, Rules: policytest.Rules(rules...), Index: policy.NewIndex(nil, 0), Cluster: []*policy.Index{policy.NewIndex(rules, 0)}}
	return policy.NewSnapshot(policy.Snapshot{Number: number, Views: []*policy.View{view}, PeerSets: peers}, []policy.Pod{young}, map[netip.Addr]policy.PodRef{young.IPs[0]: young.PodRef})
}

// TestPreparedPeersAreNoDrift: a comparison between Prepare and Commit neither takes the members of peers in force
// for drift, nor brings those of the coming snapshot into force. A connection that a standard rule denies from the
// Commit on goes on.
func TestPreparedPeersAreNoDrift(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w := newWorldOn(t, plane)
		db := policy.Peer{Kind: policy.PeerPods, Key: "db"}
		rule := &policy.Rule{Tier: policy.Admin, Standard: true, Action: policy.Deny, Peer: db, Ports: policy.AnyPort, Policy: "cluster"}
		with := func(number uint64, member string) *policy.Snapshot {
			return ruled(number, []*policy.PeerSet{{Peer: db, Addrs: addrs(member)}}, rule)
		}
		fatal.If(t, w.rollOut(with(1, "10.2.0.1")))
		open := w.track("10.1.0.3:1001", "10.2.0.2:443")
		w.prepare(with(2, "10.2.0.2"))
		denied := func(when, want, other string) {
			if dump := w.inet.Dump(); !strings.Contains(dump, want) || strings.Contains(dump, other) {
				t.Errorf("%s the member of the peer is not %s alone", when, want)
			}
		}
		w.reconcile()
		denied("after a comparison", "10.2.0.1", "10.2.0.2")
		w.links.SetHome(addr("10.1.0.3"), link.Home{Iface: "veth3"})
		fatal.If(t, w.e.resettle(context.Background()))
		denied("after a change of links", "10.2.0.1", "10.2.0.2")
		w.commit()
		denied("after the Commit", "10.2.0.2", "10.2.0.1")
		if repairs := w.e.Status().Repairs; repairs != 0 || !w.admitted(open) {
			t.Errorf("%d repairs, the open connection is admitted: %v", repairs, w.admitted(open))
		}
	})
}

// TestAbandonedOrderedRules: what the ordered rules of a pod admitted, whose first snapshot could not be prepared,
// ends with the next snapshot, which has no such rules.
func TestAbandonedOrderedRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allow := pol("allow", "tcp/443 www.example.org")
	w.apply([]policy.Pod{pod("old", "10.1.0.2", "allow")}, allow)
	w.seams.forget(1, false)
	err := w.e.Prepare(context.Background(), ruled(9, nil, &policy.Rule{Tier: policy.Admin, Action: policy.Accept, Ports: policy.AnyPort, Policy: "cluster"}))
	if err == nil || !slices.Contains(w.selected(), "10.1.0.3") {
		t.Fatalf("Prepare says %v, isolated are %v", err, w.selected())
	}
	w.seams.forget(0, false)
	open := w.track("10.1.0.3:1001", "192.0.2.9:443")
	w.apply([]policy.Pod{pod("old", "10.1.0.2", "allow"), pod("young", "10.1.0.3", "allow")}, allow)
	if w.admitted(open) {
		t.Error("a connection goes on that no snapshot in force ever allowed")
	}
}

// TestSetsAreRepairedWhileTablesAreRefused: nft refuses every write, and the sets of pods with ordered rules are
// repaired all the same.
func TestSetsAreRepairedWhileTablesAreRefused(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), pod("web", "10.1.0.5", "allow")
	fatal.If(t, w.rollOut(denying(t, []int{81}, []policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))))
	w.answer(p, "www.example.org", 600, "192.0.2.1")
	set := xtables.GrantSetName(p.PodRef, https, iptables.IPv4)
	fatal.If(t, w.flush(set))
	tx := w.inet.NewTransaction()
	tx.Flush(&knftables.Chain{Name: "forward"})
	fatal.If(t, w.inet.Run(context.Background(), tx))
	w.seams.refuse = "nft"
	if err := w.e.compare(context.Background(), true, true); !errors.Is(err, errInjected) {
		t.Errorf("the comparison says %v", err)
	}
	if w.left(p, https, "192.0.2.1") == 0 {
		t.Error("the set is not repaired")
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
		rule := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "cluster", Denial: policy.Denial{DNSDenied: policy.Resolve}}
		rule.ID = rule.NewID()
		s := ruled(9, nil, rule)
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

// TestBegunBeforeIngressRules: connections to a pod begin after those that are open are admitted, and before rules for
// ingress are in force. One that these allow is admitted: what the pod sends to a client that has nothing to say would
// be dropped for ever.
func TestBegunBeforeIngressRules(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w := newWorldOn(t, plane)
		young, db := pod("young", "10.1.0.3"), policy.Peer{Kind: policy.PeerPods, Key: "db"}
		w.apply([]policy.Pod{young})
		accept := &policy.Rule{Tier: policy.Admin, Standard: true, Ingress: true, Action: policy.Accept, Peer: db, Ports: policy.AnyPort, Policy: "cluster"}
		deny := &policy.Rule{Tier: policy.Admin, Standard: true, Ingress: true, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerAnywhere}, Ports: policy.AnyPort, Policy: "cluster"}
		view := &policy.View{Pod: young, Rules: policytest.Rules(), Index: policy.NewIndex(nil, 0), Ingress: &policy.Ingress{Rules: policytest.Rules(accept, deny)}}
		s := policy.NewSnapshot(policy.Snapshot{Number: 9, Views: []*policy.View{view}, PeerSets: []*policy.PeerSet{{Peer: db, Addrs: addrs("10.2.0.1")}}},
			[]policy.Pod{young}, map[netip.Addr]policy.PodRef{young.IPs[0]: young.PodRef})
		w.prepare(s)
		allowed, denied := flow("10.2.0.1:1001", "10.1.0.3:443"), flow("10.2.0.2:1001", "10.1.0.3:443")
		allowed.Mark, denied.Mark = 0, 0
		begun := false
		w.seams.before = func(step string) {
			if step == "nft inet" && !begun {
				begun = true
				w.flows.Track(allowed)
				w.flows.Track(denied)
			}
		}
		w.commit()
		if !begun || !w.admitted(allowed) || w.admitted(denied) {
			t.Errorf("begun %v, admitted: the allowed one %v, the denied one %v", begun, w.admitted(allowed), w.admitted(denied))
		}
	})
}

// TestFirstStartRefusesNothingAllowed: on a node without an earlier agent the chains say
// what pods may do before anything denies them: at no step is a new connection refused
// that is allowed, and one that is opened on the way goes on.
func TestFirstStartRefusesNothingAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := pod("client", "10.1.0.5 2001:db8:1::5", "allow", "np")
	w.netpols = append(w.netpols, netpol("np", "tcp/5432 db"))
	w.remote = append(w.remote, far("db", "10.2.0.1 2001:db8:2::1", "db"))
	snap := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	open := func(step string) {
		for _, to := range []string{"10.2.0.1:5432", "[2001:db8:2::1]:5432"} {
			from := map[bool]string{true: "10.1.0.5", false: "2001:db8:1::5"}[addrPort(to).Addr().Is4()]
			if !w.reaches(from, to, policy.TCP) {
				t.Errorf("%s is refused before: %s", to, step)
			}
		}
	}
	w.seams.before = open
	w.prepare(snap)
	fatal.If(t, w.answerBy(snap, client, "www.example.org", 60, "192.0.2.1"))
	w.seams.before = func(step string) {
		open(step)
		if !w.reaches("10.1.0.5", "192.0.2.1:443", policy.TCP) {
			t.Errorf("what was granted is refused before: %s", step)
		}
	}
	early := &packet{Src: addr("10.1.0.5"), Dst: addr("10.2.0.1"), Protocol: uint8(policy.TCP), DstPort: 5432}
	if w.passes(early); early.Conn&DefaultMark == 0 {
		t.Error("what a pod opens while its names are resolved has no admission")
	}
	w.commit()
	open("the end")
	if w.reaches("10.1.0.5", "10.2.0.1:5433", policy.TCP) {
		t.Error("nothing is denied")
	}
}

// What an earlier agent's chains say stays in force until the first Commit, also where
// the first snapshot has nothing of it.
func TestFirstPrepareLeavesAnEarlierAgentsChains(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	w.restart()
	w.netpols = nil
	snap := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	w.prepare(snap)
	if !w.reaches("10.1.0.5", "10.2.0.1:5432", policy.TCP) {
		t.Error("the first Prepare took away what was in force")
	}
}

// Links change while the agent resolves names between Prepare and Commit: what
// was prepared must stand.
func TestReconcileBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, late := pod("web", "10.1.0.5", "one", "two"), pod("late", "10.1.0.6", "two")
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "veth6"})
	w.apply([]policy.Pod{web}, pol("one", "tcp/443 www.example.org"))
	next := w.compile([]policy.Pod{web, late}, pol("one", "tcp/443 www.example.org"), pol("two", "tcp/80 www.example.com"))
	w.prepare(next)
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.reconcile()
	fatal.If(t, w.answerBy(next, web, "www.example.com", 60, "192.0.2.2"))
	if !w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("the kernel acknowledged a grant and the first packet is dropped")
	}
	if w.dials("10.1.0.5", "192.0.2.9", 80) || !w.dials("10.1.0.6", "192.0.2.9", 25) {
		t.Error("before Commit exactly the pods of the snapshot in force are denied")
	}
	w.commit()
	if got := w.e.Status().Homeless; len(got) != 0 {
		t.Errorf("after Commit homeless: %v", got)
	}
}

// The view that decided is asked again exactly if it is not in force.
func TestTheDecidingViewIsTrustedInForceAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, q := pod("web", "10.1.0.5", "allow"), pod("other", "10.1.0.6", "more")
	allow, more := pol("allow", "tcp/443 www.example.org"), pol("more", "tcp/443 *.example.net")
	w.apply([]policy.Pod{p, q}, allow, more)
	first, others := w.snap.ViewOf(p.PodRef), w.snap.ViewOf(q.PodRef)
	grant := func(name string, v *policy.View) error {
		return granttest.Grant(context.Background(), w.e.grants, []policy.Grant{{
			Pod: p.PodRef, Name: dns(name), Ports: https, Addrs: addrs("192.0.2.1"), Deadline: w.clock.Now().Add(60e9), View: v,
		}})
	}
	if err := grant("www.example.org", first); err != nil {
		t.Errorf("by the view in force: %v", err)
	}
	if err := grant("a.example.net", others); err == nil {
		t.Error("another pod's view is trusted")
	}
	if err := grant("www.example.org", others); err != nil {
		t.Errorf("the wrong view for what the right one allows: %v", err)
	}
	next := w.compile([]policy.Pod{p, q}, pol("allow", "tcp/443 www.example.com"), more)
	coming := next.ViewOf(p.PodRef)
	if err := grant("www.example.com", coming); err == nil {
		t.Error("a view that was never prepared is trusted")
	}
	w.prepare(next)
	if grant("www.example.org", first) != nil || grant("www.example.com", coming) != nil {
		t.Error("between Prepare and Commit both views are in force")
	}
	w.commit()
	// The proxy may have decided by the last snapshot and come late.
	if err := grant("www.example.org", first); err == nil {
		t.Error("a view that went is trusted")
	}
	if err := grant("www.example.com", first); err != nil {
		t.Errorf("a view that went, for what the one in force allows: %v", err)
	}
	if err := grant("www.example.org", coming); err != nil {
		t.Errorf("what the view in force has decided is not asked again: %v", err)
	}
}

// TestAbandonedSnapshots: what a snapshot allowed that was prepared and never came into
// force is taken back with the next that does not.
func TestAbandonedSnapshots(t *testing.T) {
	t.Parallel()
	allow := pol("allow", "tcp/443 www.example.org")
	client, young := pod("client", "10.1.0.5", "allow", "np"), pod("young", "10.1.0.6", "allow", "np")
	for what, test := range map[string]struct {
		before, during, after []policy.Pod
		from                  string
	}{
		"of a pod that stays":           {[]policy.Pod{client}, []policy.Pod{client}, []policy.Pod{client}, "10.1.0.5"},
		"of a pod that comes and stays": {nil, []policy.Pod{young}, []policy.Pod{young}, "10.1.0.6"},
		"of a pod that comes and goes":  {[]policy.Pod{client}, []policy.Pod{client, young}, []policy.Pod{client}, "10.1.0.6"},
	} {
		w := newWorld(t)
		w.remote = append(w.remote, far("db", "10.2.0.1", "db"))
		w.apply(test.before, allow)
		w.netpols = append(w.netpols, netpol("np", "tcp/5432 db"))
		w.prepare(w.compile(test.during, allow))
		early := &packet{Src: addr(test.from), Dst: addr("10.2.0.1"), Protocol: uint8(policy.TCP), DstPort: 5432}
		if w.passes(early); early.Conn&DefaultMark == 0 {
			t.Fatalf("%s: the chains do not say it ahead", what)
		}
		f := w.track(test.from+":1001", "10.2.0.1:5432")
		w.netpols = nil
		w.apply(test.after, allow)
		if w.admitted(f) {
			t.Errorf("%s: a connection goes on that no snapshot in force ever allowed", what)
		}
	}
}
