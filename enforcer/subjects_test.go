package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/policytest"
)

// refusing refuses entries of one subject.
type refusing struct {
	subject     netip.Addr
	add, remove bool
}

// apply refuses its ops, and does the others.
func (r *refusing) apply(ops []timed.Op, do func([]timed.Op)) {
	var rest []timed.Op
	var at []int
	for i := range ops {
		ofSubject := slices.ContainsFunc(ops[i].Entries, func(e timed.Entry) bool { return e.Subject == r.subject })
		if ofSubject && (ops[i].Remove && r.remove || !ops[i].Remove && r.add) {
			ops[i].Err = errInjected
			continue
		}
		rest, at = append(rest, ops[i]), append(at, i)
	}
	do(rest)
	for i := range rest {
		ops[at[i]].Err = rest[i].Err
	}
}

// entrySeam is the entries of a world.
type entrySeam struct {
	entries.Tables
	w *world
}

func (s entrySeam) ApplyEntries(ops []timed.Op) {
	if s.w.refuse != nil {
		s.w.refuse.apply(ops, s.Tables.ApplyEntries)
	} else {
		s.Tables.ApplyEntries(ops)
	}
}

// denying is a snapshot of pods whose first rules deny a.test, one on each port.
func denying(t *testing.T, ports []int, pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	var rules []string
	for _, port := range ports {
		rules = append(rules, fmt.Sprintf("{action: Deny, matches: [{name: a.test}], ports: [{protocol: TCP, port: %d}]}", port))
	}
	deny := clusterPolicy(t, "deny", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: ["+strings.Join(rules, ", ")+"]}")
	return compile.New().Compile(compile.Input{Pods: pods, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{deny}, Policies: policies})
}

// enter grants what an answer enters by all rules of a snapshot, which must work.
func (w *world) enter(s *policy.Snapshot, p policy.Pod, name, a string) {
	w.t.Helper()
	v, gs := s.ViewOf(p.PodRef), []policy.Grant(nil)
	for _, o := range v.Decide(dns(name)).Openings(600) {
		gs = append(gs, policy.Grant{Pod: p.PodRef, View: v, Name: o.Name, Addrs: addrs(a), Ports: o.Ports, Rule: o.Rule, Deadline: w.clock.Now().Add(o.Lifetime), By: o.By})
	}
	fatal.If(w.t, granttest.Grant(context.Background(), w.e.grants, gs))
}

// held is how many entries of a pod's first address the set of a rule has.
func (w *world) held(p policy.Pod, id policy.RuleID) (n int) {
	w.t.Helper()
	fatal.If(w.t, w.e.k.Tables.Store.ListEntries([]string{string(id)}, func(_ string, part []timed.Entry) {
		for _, e := range part {
			if e.Subject == p.IPs[0] {
				n++
			}
		}
	}))
	return n
}

// TestEntriesOfAnAbandonedSnapshot: what was entered for a rule by a snapshot that never came into force is there
// when the rule comes again.
func TestEntriesOfAnAbandonedSnapshot(t *testing.T) {
	t.Parallel()
	w, web := newWorld(t), pod("web", "10.1.0.5")
	of := func(ports ...int) *policy.Snapshot { return denying(t, ports, []policy.Pod{web}) }
	fatal.If(t, w.rollOut(of(81)))
	w.enter(w.snap, web, "a.test", "192.0.2.1")
	w.prepare(of(81, 82))
	w.prepare(of(81, 83))
	s := of(81, 82)
	fatal.If(t, w.rollOut(s))
	for _, r := range s.Views[0].Rules.Admin {
		diff.Equal(t, 1, w.held(web, r.ID), "entries of the rule on", r.Ports)
	}
	fatal.If(t, w.rollOut(of(81)))
	if sets := w.inet.Dump(); strings.Count(sets, "add set inet namegate entries-") != 2 { // one of each family
		t.Errorf("sets of rules that went are left:\n%s", sets)
	}
}

// TestKeysAreOfLiveEntries: a key goes with the last entry that has it, whether that is evicted, ends, is taken back
// or ended without an agent. None goes that an entry has, nor before the next agent's first snapshot is in force.
func TestKeysAreOfLiveEntries(t *testing.T) {
	t.Parallel()
	w, web := newWorld(t), pod("web", "10.1.0.5")
	of := func(policies ...*v1alpha1.ClusterFQDNNetworkPolicy) *policy.Snapshot {
		return compile.New().Compile(compile.Input{Pods: []policy.Pod{web}, ClusterPolicies: policies})
	}
	zone := clusterPolicy(t, "zone", "{tier: Admin, priority: 2, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{pattern: '*.zone.test'}]}]}")
	s := of(zone, clusterPolicy(t, "deny", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: a.test}]}]}"))
	check := func(when string, left time.Duration, least, most int) {
		t.Helper()
		w.clock.Pass(left)
		if err := w.e.grants.Expire(); err != nil && w.refuse == nil {
			t.Error(err)
		}
		keys, err := w.inet.ListElements(t.Context(), "set", "named4")
		fatal.If(t, err)
		there, live := map[netip.Addr]bool{}, map[netip.Addr]bool{}
		for _, k := range keys {
			there[addr(k.Key[1])] = true
		}
		for _, r := range s.Views[0].Rules.Admin {
			fatal.If(t, w.e.k.Tables.Store.ListEntries([]string{string(r.ID)}, func(_ string, part []timed.Entry) {
				for _, e := range part {
					live[e.Addr] = true
				}
			}))
		}
		maps.DeleteFunc(live, func(a netip.Addr, _ bool) bool { return there[a] })
		if len(live) > 0 || len(there) < least || len(there) > most {
			t.Errorf("%s: %d keys, want %d to %d; live entries without one: %v", when, len(there), least, most, live)
		}
	}
	begin := func() {
		fatal.If(t, w.rollOut(s))
		w.e.grants.SetBounds(64, grants.DefaultAll)
		w.enter(s, web, "a.test", "192.0.2.0")
		for n := range 12 {
			var all []string
			for i := range 16 {
				all = append(all, fmt.Sprint("192.0.2.", n*16+i))
			}
			w.enter(s, web, "n.zone.test", strings.Join(all, " "))
		}
	}
	begin()
	check("after evictions", 0, 48, 65)
	w.refuse = &refusing{web.IPs[0], false, true}
	check("the kernel refuses to end entries", 15*time.Minute, 48, 65)
	w.refuse = nil
	check("after the end of all but the one that denies", 2*time.Second, 1, 1)
	begin()
	w.restart()
	w.prepare(of(zone))
	check("before the next agent's first snapshot is in force", 15*time.Minute, 192, 192)
	w.commit()
	check("after it", 0, 0, 0)
	begin()
	w.clock.Pass(48 * time.Hour)
	w.restart()
	fatal.If(t, w.rollOut(s))
	check("after two days without an agent", 0, 0, 0)
	begin()
	fatal.If(t, w.rollOut(of()))
	check("without the policies", 0, 0, 0)
}

// TestAFailureOfOnePod: whatever the kernel refuses of the entries of one pod, a policy that comes and
// one that goes are in force for its neighbour at once, and for the pod once the kernel takes them. The
// rule whose entries are refused denies the pod its ports.
func TestAFailureOfOnePod(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		for _, test := range []struct {
			name   string
			fails  refusing
			closed bool
		}{
			{"entries are not written", refusing{add: true}, true},
			{"entries are not removed", refusing{remove: true}, false},
			{"neither", refusing{add: true, remove: true}, true},
		} {
			t.Run(test.name, func(t *testing.T) {
				w := newWorldOn(t, plane)
				web, other := pod("web", "10.1.0.5", "one", "two"), pod("other", "10.1.0.6", "one", "two")
				first, both := []int{81}, []int{81, 82}
				roll := func(ports []int) (*policy.Snapshot, error) {
					// Two sets that open an address, so that each asks for what denies it.
					if err := w.e.Prepare(context.Background(), denying(t, ports, []policy.Pod{web, other}, pol("one", "tcp/443 *.test"), pol("two", "tcp/80 *.test"))); err != nil {
						t.Fatalf("%v: Prepare says %v", ports, err)
					}
					return w.e.Coming(), w.e.Commit(context.Background())
				}
				s, err := roll(first)
				fatal.If(t, err)
				w.enter(s, web, "a.test", "192.0.2.1")
				w.enter(s, other, "a.test", "192.0.2.1")
				rules := func(s *policy.Snapshot, p policy.Pod) (out []policy.RuleID, closed int) {
					for _, r := range s.ViewOf(p.PodRef).Rules.Admin {
						if out = append(out, r.ID); r.Closed {
							closed++
						}
					}
					return out, closed
				}
				fails := test.fails
				fails.subject = web.IPs[0]
				w.refuse = &fails
				s, err = roll(both)
				if err != nil && !errors.Is(err, errInjected) {
					t.Fatal(err)
				}
				ids, closed := rules(s, other)
				if len(ids) != 2 || closed != 0 || w.held(other, ids[0]) != 1 || w.held(other, ids[1]) != 1 {
					t.Errorf("the neighbour has the rules %q, %d closed, with %d and %d entries", ids, closed, w.held(other, ids[0]), w.held(other, ids[1]))
				}
				if _, closed := rules(s, web); (closed > 0) != test.closed || (len(s.Problems) > 0) != test.closed {
					t.Errorf("%d rules of the pod are closed; %v", closed, s.Problems)
				}
				last := ids[1]
				s, err = roll(first)
				if err != nil && !errors.Is(err, errInjected) {
					t.Fatal(err)
				}
				if _, closed := rules(s, other); closed != 0 || w.held(other, last) != 0 {
					t.Errorf("of a rule that went, the neighbour has %d entries", w.held(other, last))
				}
				w.refuse = nil
				w.clock.Pass(time.Second)
				s, err = roll(both)
				if fatal.If(t, err); len(s.Problems) > 0 || w.held(web, ids[0]) != 1 || w.held(web, ids[1]) != 1 {
					t.Errorf("once the kernel takes entries: %v, %d and %d", s.Problems, w.held(web, ids[0]), w.held(web, ids[1]))
				}
			})
		}
	})
}

// unlisted is entries that cannot be listed.
type unlisted struct{ entries.Tables }

func (unlisted) ListEntries([]string, func(string, []timed.Entry)) error { return errInjected }

// TestEntriesThatAreNotRecovered: a pod whose entries an agent cannot list is selected and
// gets no grant, and its entries stay, until they are listed.
func TestEntriesThatAreNotRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := clusterPolicy(t, "deny", "{tier: Admin, priority: 1, subject: {namespaces: {}}, dns: {denied: Resolve}, egress: [{action: Deny, matches: [{name: paste.test}]}]}")
	p := pod("web", "10.1.0.5")
	snapshot := func() *policy.Snapshot {
		return compile.New().Compile(compile.Input{Pods: []policy.Pod{p}, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}})
	}
	ask := func(s *policy.Snapshot) error {
		gs := w.grants(s, p.PodRef, "paste.test", 60, "192.0.2.1")
		gs[0].Rule = s.ViewOf(p.PodRef).Rules.Admin[0].ID
		return granttest.Grant(context.Background(), w.e.grants, gs)
	}
	s := snapshot()
	fatal.If(t, w.rollOut(s))
	fatal.If(t, ask(s))
	held := func() (n int) {
		fatal.If(t, w.e.k.Tables.Store.ListEntries([]string{string(s.Views[0].Rules.Admin[0].ID)}, func(_ string, part []timed.Entry) { n += len(part) }))
		return n
	}
	if held() != 1 || w.e.Status().Grants != 1 {
		t.Fatalf("%d entries, %d grants", held(), w.e.Status().Grants)
	}

	w.restart()
	listed := *w.e.entries
	*w.e.entries = *entries.New(unlisted{w.e.k.Tables.Store}, w.e.plane)
	s = snapshot()
	if err := w.e.Prepare(context.Background(), s); !errors.Is(err, errInjected) {
		t.Fatalf("Prepare says %v", err)
	}
	if ask(s) == nil {
		t.Error("a grant is acknowledged")
	}
	if held() != 1 || !slices.Contains(w.selected(), "10.1.0.5") {
		t.Errorf("%d entries, selected: %v", held(), w.selected())
	}

	*w.e.entries = listed
	fatal.If(t, w.rollOut(s))
	if got := w.e.grants.ListGrants(p.PodRef); len(got) != 1 || got[0].Rule != s.Views[0].Rules.Admin[0].ID || got[0].By != "deny paste.test" {
		t.Errorf("recovered: %+v", got)
	}
}

// TestAConnectionOfTheNodeIsUse: an address stays open for the node while a connection of the node to it is
// active, although such connections have no admission. Connections of pods that no policy selects have none
// either, and do not count.
func TestAConnectionOfTheNodeIsUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := policytest.NodePolicy(t, "nodes", "{nodeSelector: {}, priority: 1, egress: [{action: Accept, matches: [{name: www.test}], ports: [{protocol: TCP, port: 443}]}, {action: Deny}]}")
	var inUse []policy.NameInUse
	w.e.grants.OnInUse(func(names []policy.NameInUse) { inUse = append(inUse, names...) })
	s := compile.New().Compile(compile.Input{NodePolicies: []*v1alpha1.NodeNetworkPolicy{nodes}, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}, Addrs: addrs("198.51.100.1 2001:db8::100")}})
	fatal.If(t, w.rollOut(s))
	node := policy.NodeRef("n1")
	gs := w.grants(s, node, "www.test", 60, "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1")
	gs[0].Rule = s.Node().Rules.Admin[0].ID
	fatal.If(t, granttest.Grant(context.Background(), w.e.grants, gs))
	for _, f := range []conntrack.Flow{flow("198.51.100.1:1001", "192.0.2.1:443"), flow("10.1.0.9:1001", "192.0.2.2:443"), flow("198.51.100.1:1002", "192.0.2.3:80"), flow("[2001:db8::100]:1001", "[2001:db8::1]:443")} {
		f.Mark = 0
		w.flows.Track(f)
		w.flows.Establish(f, 20*time.Second)
	}
	for range 20 {
		w.expire(10 * time.Second)
	}
	var due []string
	for _, n := range inUse {
		for _, a := range n.Due {
			due = append(due, a.String())
		}
	}
	slices.Sort(due)
	if want := []string{"192.0.2.1", "2001:db8::1"}; !slices.Equal(slices.Compact(due), want) {
		t.Errorf("in use: %v, want %v", due, want)
	}
}
