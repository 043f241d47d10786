package grants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/policytest"
)

// cluster is a policy for all pods of the cluster.
func cluster(t testing.TB, name, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	return policytest.ClusterPolicy(t, name, "{subject: {namespaces: {}}, "+spec+"}")
}

// gated is a node with one pod, which may reach *.example.net and is denied names below
// denied.test on port 443, for 100 seconds.
func gated(t testing.TB) (*node, policy.Pod) {
	n := newNode(t)
	p := pod("web", "allow")
	p.IPs = addrs("10.1.0.5 2001:db8:1::5")
	n.cluster = []*v1alpha1.ClusterFQDNNetworkPolicy{cluster(t, "deny",
		"tier: Admin, priority: 1, ttl: {reuseSeconds: 100}, egress: [{action: Deny, matches: [{pattern: '**.denied.test'}], ports: [{protocol: TCP, port: 443}]}]")}
	n.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
	return n, p
}

// decided returns the grants of an answer, with the aliases of its chain.
func (n *node) decided(p policy.PodRef, name string, ttl uint32, answer string, aliases ...fqdn.Name) (out []policy.Grant) {
	v := n.snap.ViewOf(p)
	if v == nil {
		return nil
	}
	d := policy.Decide(v, policy.Query{Name: dns(name), Aliases: aliases})
	for _, o := range d.Openings(ttl) {
		out = append(out, policy.Grant{Pod: p, View: v, Name: o.Name, Addrs: addrs(answer), Ports: o.Ports, Rule: o.Rule, Deadline: n.Now().Add(o.Lifetime), By: o.By})
	}
	return out
}

// rule returns the set of the pod's only rule of an action.
func (n *node) rule(p policy.Pod, action policy.Action, ipv6 bool) dataplane.GrantSet {
	n.t.Helper()
	for r := range n.snap.ViewOf(p.PodRef).Rules.Cluster() {
		if r.ID != "" && r.Action == action {
			return dataplane.GrantSet{Pod: p.PodRef, Ports: r.Ports, Rule: r.ID, Subject: p.IPs[slices.IndexFunc(p.IPs, func(a netip.Addr) bool { return a.Is6() == ipv6 })], IPv6: ipv6}
		}
	}
	n.t.Fatal("no such rule")
	return dataplane.GrantSet{}
}

// left is how long the kernel keeps an address of a set.
func (n *node) left(set dataplane.GrantSet, a netip.Addr) time.Duration {
	all, _ := n.sets.list(nameOf(set))
	for _, g := range all {
		if g.Addr == a {
			return g.Timeout
		}
	}
	return 0
}

// tick lets time pass second by second, with an agent that ends grants.
func (n *node) tick(seconds int) {
	n.t.Helper()
	for range seconds {
		n.expire(time.Second)
	}
}

// TestADenyOutlastsWhatItShadows: an entry ends by the name's own time, and not before an address
// that another name opens for longer, whichever comes first; also where the kernel refuses to remove
// that address.
func TestADenyOutlastsWhatItShadows(t *testing.T) {
	w, p := gated(t)
	a, deny := addr("192.0.2.1"), w.rule(p, policy.Deny, false)
	grant := func(name string, ttl uint32) {
		t.Helper()
		fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, name, ttl, a.String())))
	}
	grant("x.denied.test", 60)
	if got := w.left(deny, a); got != 170*time.Second { // the TTL, the rule's time and the margin
		t.Fatalf("the entry lives %v", got)
	}
	grant("www.example.net", 600)
	if open, denied := w.stays(p, a.String()), w.left(deny, a); denied < open {
		t.Errorf("opened later: %v open, %v denied", open, denied)
	}
	w.sets.instead = func(op *dataplane.GrantOp) error {
		if op.Remove && !op.Set.Rule.Lasting() {
			return errInjected
		}
		return w.sets.do(op)
	}
	for range 700 {
		w.Pass(time.Second)
		_ = w.table.Expire()
		if w.stays(p, a.String()) > 0 && w.left(deny, a) == 0 {
			t.Fatal("open, and not denied any more")
		}
	}
	w.sets.instead = nil
	w.tick(100 + 600)
	if w.left(deny, a) != 0 || w.stays(p, a.String()) != 0 || w.table.Figures().Grants != 0 {
		t.Errorf("in the end: %v denied, %v open, %d grants", w.left(deny, a), w.stays(p, a.String()), w.table.Figures().Grants)
	}

	// Opened first, and denied for a shorter time.
	grant("www.example.net", 3600)
	grant("y.denied.test", 60)
	if open, denied := w.stays(p, a.String()), w.left(deny, a); denied < open {
		t.Errorf("denied later: %v open, %v denied", open, denied)
	}
}

// TestNoAcceptWithoutTheDeny: where the kernel refuses an entry of a rule that denies, the
// pod's other grants of the batch are not written; other pods' are.
func TestNoAcceptWithoutTheDeny(t *testing.T) {
	for _, late := range []bool{false, true} {
		w, p := gated(t)
		other := pod("other", "allow")
		other.IPs = addrs("10.1.0.6")
		w.apply([]policy.Pod{p, other}, pol("allow", "tcp/443 *.example.net"))
		deny := w.rule(p, policy.Deny, false)
		w.sets.instead = func(op *dataplane.GrantOp) error {
			if !op.Set.Rule.Lasting() {
				return w.sets.do(op)
			}
			if late {
				return errors.Join(w.sets.do(op), errInjected)
			}
			return errInjected
		}
		asked := [][]policy.Grant{
			slices.Concat(w.decided(p.PodRef, "www.example.net", 60, "192.0.2.1"), w.decided(p.PodRef, "x.denied.test", 60, "192.0.2.1")),
			w.decided(p.PodRef, "api.example.net", 60, "192.0.2.2"),
			w.decided(other.PodRef, "api.example.net", 60, "192.0.2.3"),
		}
		release := w.hang(t, other)
		for i, err := range together(t, w, release, asked) {
			if (err != nil) != (i < 2) {
				t.Errorf("late %v: request %d: %v", late, i, err)
			}
		}
		if es := w.entries(p, false); len(es) != 0 {
			t.Errorf("late %v: opened without the entry that denies: %v", late, es)
		}
		// What is uncertain is written again before another name opens the address.
		api := w.decided(p.PodRef, "api.example.net", 60, "192.0.2.1")
		fatalUnless(t, granttest.Grant(context.Background(), w.table, api) != nil, "opened beside an uncertain entry")
		w.sets.instead = nil
		fatal.If(t, granttest.Grant(context.Background(), w.table, api))
		if w.left(deny, addr("192.0.2.1")) < w.stays(p, "192.0.2.1") {
			t.Error("the entry is not there")
		}
		w.sets.noRules = true
		delete(w.sets.held, nameOf(deny))
		fatalUnless(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "z.denied.test", 60, "192.0.2.9")) != nil, "a missing set is no error")
	}
}

func fatalUnless(t *testing.T, is bool, otherwise string) {
	t.Helper()
	if !is {
		t.Fatal(otherwise)
	}
}

// TestALastingSetIsNeverEvicted: at its bound it refuses, and rules that accept evict.
func TestALastingSetIsNeverEvicted(t *testing.T) {
	w, p := gated(t)
	g := policy.Grant{Pod: p.PodRef, Name: dns("x.denied.test"), Ports: https, Rule: w.rule(p, policy.Deny, false).Rule, Deadline: w.Now().Add(time.Minute)}
	a := addr("198.18.0.0")
	for range DefaultPerPod {
		g.Addrs, a = append(g.Addrs, a), a.Next()
	}
	fatal.If(t, granttest.Grant(context.Background(), w.table, []policy.Grant{g}))
	g.Addrs = []netip.Addr{a}
	if err := granttest.Grant(context.Background(), w.table, []policy.Grant{g}); !errors.Is(err, errFull) || w.table.Figures().Evicted != 0 {
		t.Errorf("over the bound: %v, %d evicted", err, w.table.Figures().Evicted)
	}
	fatalUnless(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "www.example.net", 60, "192.0.2.1")) == nil, "another grant of the pod is refused")
}

// TestRulesTakeOverNames: what a name opened counts for a rule that comes, at once, and for
// the rule that another one becomes; what was denied is not opened, and what no rule covers
// any more is withdrawn, denials last.
func TestRulesTakeOverNames(t *testing.T) {
	w, p := gated(t)
	allow := pol("allow", "tcp/443 *.example.net")
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "www.example.net", 60, "192.0.2.1 2001:db8::1")))
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "cdn.test", 60, "192.0.2.2", dns("x.denied.test"))))
	// One rule comes before the other, whose ID changes, and a rule that accepts.
	spec := "tier: Admin, priority: 1, ttl: {reuseSeconds: 100}, egress: [{action: Pass, matches: [{name: www.example.net}, {pattern: '**.denied.test'}]}, %s{action: Deny, matches: [{pattern: '**.denied.test'}], ports: [{protocol: TCP, port: 443}]}]"
	accept := "{action: Accept, matches: [{pattern: '**.test'}]}, "
	w.cluster[0] = cluster(t, "deny", fmt.Sprintf(spec, accept))
	s := w.compile([]policy.Pod{p}, allow)
	fatal.If(t, w.rollOut(s))
	pass, deny := w.rule(p, policy.Pass, false), w.rule(p, policy.Deny, false)
	if got := w.left(pass, addr("192.0.2.1")); got < w.stays(p, "192.0.2.1") {
		t.Errorf("the rule that passes has not taken it over: %v", got)
	}
	if w.left(w.rule(p, policy.Pass, true), addr("2001:db8::1")) == 0 {
		t.Error("nor of IPv6")
	}
	diff.Equal(t, 0, w.left(pass, addr("192.0.2.2")), "what was only denied is passed")
	if w.left(deny, addr("192.0.2.2")) == 0 {
		t.Error("the alias of a rule that moved behind one that stops the question is lost")
	}
	diff.Equal(t, 0, w.left(w.rule(p, policy.Accept, false), addr("192.0.2.2")), "what was only denied is open")
	// An answer by the view of before enters what the one of now denies.
	w.cluster[0] = cluster(t, "deny", "tier: Admin, priority: 1, egress: [{action: Deny, matches: [{name: www.example.net}], ports: [{protocol: TCP, port: 443}]}, {action: Accept, matches: [{name: www.example.net}], ports: [{protocol: TCP, port: 444}]}]")
	old := w.decided(p.PodRef, "www.example.net", 60, "192.0.2.7")
	s = w.compile([]policy.Pod{p}, allow)
	carried, err := w.table.CarryOver(w.snap, s)
	narrowed := carried.Narrowed
	if err != nil || !slices.Contains(narrowed, p.PodRef) {
		t.Errorf("a rule that denies more: %v, %v", narrowed, err)
	}
	fatal.If(t, granttest.Grant(context.Background(), w.table, old))
	w.snap = s
	deny = w.rule(p, policy.Deny, false)
	if w.left(deny, addr("192.0.2.7")) == 0 {
		t.Error("an answer by the view of before is not denied")
	}
	fatal.If(t, w.rollOut(s))
	if w.left(w.rule(p, policy.Accept, false), addr("192.0.2.1")) == 0 {
		t.Error("the rule that accepts has not taken it over")
	}
	for _, a := range []string{"192.0.2.1", "192.0.2.7"} {
		if w.left(deny, addr(a)) < w.stays(p, a) {
			t.Errorf("%s is not denied", a)
		}
	}
	diff.Equal(t, 0, len(w.sets.held[nameOf(pass)]), "entries of a rule that is gone")
	// All go, the denials last.
	w.sets.writes, w.cluster = nil, nil
	w.apply([]policy.Pod{p})
	var removed []bool
	for _, ops := range w.sets.writes {
		removed = append(removed, ops[0].Set.Rule.Lasting())
	}
	if !slices.IsSortedFunc(removed, func(a, b bool) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) || w.table.Figures().Grants != 0 {
		t.Errorf("withdrawn in the order %v, %d grants left", removed, w.table.Figures().Grants)
	}
	if len(*w.table.pods.Load()) != 0 {
		t.Error("the pod is still there")
	}
}

// TestAnAddressThatChangesHands leaves no entry of a rule to its next pod, and takes none for
// the pod before.
func TestAnAddressThatChangesHands(t *testing.T) {
	w, p := gated(t)
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "x.denied.test", 60, "192.0.2.1")))
	deny, late := w.rule(p, policy.Deny, false), w.decided(p.PodRef, "x.denied.test", 60, "192.0.2.2")
	heir := pod("heir", "allow")
	heir.IPs = p.IPs
	s := w.compile([]policy.Pod{heir}, pol("allow", "tcp/443 *.example.net"))
	_, err := w.table.CarryOver(w.snap, s)
	fatal.If(t, err)
	diff.Equal(t, 0, len(w.sets.held[nameOf(deny)]), "entries are left")
	w.snap = s
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(heir.PodRef, "x.denied.test", 60, "192.0.2.3")))
	_ = granttest.Grant(context.Background(), w.table, late)
	fatal.If(t, w.rollOut(s))
	if n := len(w.sets.held[nameOf(deny)]); n != 1 || w.left(deny, addr("192.0.2.3")) == 0 {
		t.Errorf("the next pod has %v", w.sets.held[nameOf(deny)])
	}
}

// TestAnAddressMovesBetweenPods: a pod that stays and gets the address of another has its own entries there, in
// whichever order the pods come.
func TestAnAddressMovesBetweenPods(t *testing.T) {
	for range 16 { // the order is that of a map
		w, p := gated(t)
		heir := pod("heir", "allow")
		heir.IPs = addrs("10.1.0.6")
		allow := pol("allow", "tcp/443 *.example.net")
		w.apply([]policy.Pod{p, heir}, allow)
		for _, of := range []policy.Pod{p, heir} {
			fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(of.PodRef, "x.denied.test", 60, "192.0.2.1")))
		}
		deny := w.rule(p, policy.Deny, false)
		p.IPs, heir.IPs = addrs("10.1.0.7"), addrs("10.1.0.6 10.1.0.5")
		_, err := w.table.CarryOver(w.snap, w.compile([]policy.Pod{p, heir}, allow))
		fatal.If(t, err)
		if e := w.sets.held[nameOf(deny)][addr("192.0.2.1")]; !strings.HasPrefix(e.comment, dataplane.PodID(heir.PodRef)) {
			t.Fatalf("the entry of the address that moved: %+v", e)
		}
	}
}

// TestUnreadableNamesOfADenialStay: until the timeout, under the next agent, also beside a
// name that its rule does not cover any more; those of a rule that accepts go.
func TestUnreadableNamesOfADenialStay(t *testing.T) {
	w, p := gated(t)
	long := strings.Repeat("long", 15)
	for i := range 5 {
		fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, fmt.Sprintf("%d.%s.denied.test", i, long), 60, "192.0.2.1")))
	}
	deny := w.rule(p, policy.Deny, false)
	_, comment, _ := strings.Cut(w.sets.held[nameOf(deny)][addr("192.0.2.1")].comment, " ")
	if len(comment) > namesMax || !strings.HasPrefix(comment, "0."+long+".denied.test ; 1.") || !strings.HasSuffix(comment, " ; ...") {
		t.Errorf("comment %q", comment)
	}
	w.sets.held[nameOf(deny)][addr("192.0.2.2")] = entry{until: w.Now().Add(time.Minute), comment: "a..b"}
	before := w.snap
	w.restart()
	fatal.If(t, w.table.Recover([]policy.RuleID{deny.Rule}, before.View, false))
	w.cluster[0] = cluster(t, "deny", "tier: Admin, priority: 1, ttl: {reuseSeconds: 100}, egress: [{action: Deny, matches: [{name: other.test}], ports: [{protocol: TCP, port: 443}]}]")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
	if w.rule(p, policy.Deny, false) != deny || w.left(deny, addr("192.0.2.1")) == 0 || w.left(deny, addr("192.0.2.2")) == 0 {
		t.Errorf("withdrawn: %v", w.sets.held)
	}
	w.tick(200)
	if w.left(deny, addr("192.0.2.1")) != 0 || w.table.Figures().Grants != 0 {
		t.Errorf("%d grants after the timeout", w.table.Figures().Grants)
	}
}

// TestAnAddressOfAnUnfinishedCommit: its next pod keeps what it is granted, also where the
// pod before is in no snapshot and its entries could not be withdrawn.
func TestAnAddressOfAnUnfinishedCommit(t *testing.T) {
	w, p := gated(t)
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, "x.denied.test", 60, "192.0.2.1")))
	deny := w.rule(p, policy.Deny, false)
	none := w.compile(nil, pol("allow", "tcp/443 *.example.net"))
	w.sets.fail(1, false)
	if err := w.rollOut(none); err == nil {
		t.Fatal("no write failed")
	}
	w.snap = none
	heir := pod("heir", "allow")
	heir.IPs = p.IPs
	s := w.compile([]policy.Pod{heir}, pol("allow", "tcp/443 *.example.net"))
	_, err := w.table.CarryOver(w.snap, s)
	fatal.If(t, err)
	w.snap = s
	fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(heir.PodRef, "x.denied.test", 60, "192.0.2.1")))
	fatal.If(t, w.rollOut(s))
	if w.left(deny, addr("192.0.2.1")) == 0 {
		t.Error("the entry of the next pod is gone")
	}
}
