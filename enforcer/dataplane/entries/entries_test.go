package entries_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

const (
	deny   = policy.RuleID("d00112233445566773c") // for a minute
	accept = policy.RuleID("a0011223344556677")
)

var addr = netip.MustParseAddr

// node is nft tables on fakes, and the grants that they are to hold.
type node struct {
	*testclock.Clock
	tables  *nft.Tables
	store   *entries.Store
	others  others
	another bool
	wanted  map[dataplane.GrantSet][]dataplane.Grant
}

// others is a dataplane that refuses one set.
type others struct {
	refused string
	written []string
}

func (o *others) ApplyGrants(ops []dataplane.GrantOp) {
	for i := range ops {
		o.written = append(o.written, ops[i].Set.Name)
		if ops[i].Set.Name == o.refused {
			ops[i].Err = errors.New("refused")
		}
	}
}

func (o *others) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	for _, s := range sets {
		each(s, []dataplane.Grant{{Comment: "of the dataplane"}})
	}
	return nil
}

func (n *node) Holds(set dataplane.GrantSet) bool                       { return n.wanted[set] != nil }
func (n *node) Adopt(map[dataplane.GrantSet][]dataplane.Grant)          {}
func (n *node) FreezeBounds(dataplane.GrantSet, func(dataplane.Bounds)) {}
func (n *node) Bounds() iter.Seq2[dataplane.GrantSet, dataplane.Bounds] {
	return func(func(dataplane.GrantSet, dataplane.Bounds) bool) {}
}

func (n *node) RuleSets() iter.Seq[dataplane.GrantSet] { return maps.Keys(n.wanted) }

func (n *node) Members(set dataplane.GrantSet) []dataplane.Frozen {
	all, there := n.wanted[set]
	if !there {
		return nil
	}
	return []dataplane.Frozen{{Set: set, Certain: slices.Clone(all)}}
}

func (n *node) Freeze(set dataplane.GrantSet, f func([]dataplane.Frozen)) {
	if all := n.Members(set); len(all) > 0 {
		f(all)
	}
}

func newNode(t *testing.T) *node {
	n := &node{Clock: testclock.New(time.Unix(1_700_000_000, 0)), wanted: map[dataplane.GrantSet][]dataplane.Grant{}}
	n.tables = nft.New(knftables.NewFake(knftables.InetFamily, nft.TableName), knftables.NewFake(knftables.BridgeFamily, nft.TableName), nft.Bits{Admitted: 1, Candidate: 2})
	n.tables.FakeClock(n.Now)
	fatal.If(t, n.tables.Setup(context.Background()))
	fatal.If(t, n.tables.AddSets(context.Background(), []string{string(deny), string(accept)}, nil))
	n.store = entries.New(n.tables, &n.others, false, func() bool { return n.another })
	return n
}

// set is the grants of a pod with an address for a rule.
func set(pod string, id policy.RuleID, subject string) dataplane.GrantSet {
	return dataplane.GrantSet{Pod: policytest.Ref(pod), Ports: "tcp/443", Rule: id, Subject: addr(subject), IPv6: addr(subject).Is6()}
}

// write adds grants, which must work, and wants them.
func (n *node) write(t *testing.T, s dataplane.GrantSet, all ...dataplane.Grant) {
	t.Helper()
	ops := []dataplane.GrantOp{{Set: s, Grants: all}}
	n.store.ApplyGrants(ops)
	fatal.If(t, ops[0].Err)
	n.wanted[s] = append(n.wanted[s], all...)
}

// holds returns the addresses of a set, with their timeouts and comments.
func (n *node) holds(t *testing.T, s dataplane.GrantSet) (out []string) {
	t.Helper()
	fatal.If(t, n.store.ListGrants([]dataplane.GrantSet{s}, func(_ dataplane.GrantSet, part []dataplane.Grant) {
		for _, g := range part {
			out = append(out, fmt.Sprintf("%s %v %s", g.Addr, g.Timeout, g.Comment))
		}
	}))
	slices.Sort(out)
	return out
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func grant(a string, timeout time.Duration, comment string) dataplane.Grant {
	return dataplane.Grant{Addr: addr(a), Timeout: timeout, Comment: comment}
}

// TestGrantsGoWhereTheyBelong: each op has the result of its own.
func TestGrantsGoWhereTheyBelong(t *testing.T) {
	n := newNode(t)
	n.others.refused = "second"
	web := set("web", deny, "10.1.0.5")
	ops := []dataplane.GrantOp{
		{Set: dataplane.GrantSet{Name: "first"}}, {Set: web, Grants: []dataplane.Grant{grant("192.0.2.1", time.Minute, "a.test")}},
		{Set: dataplane.GrantSet{Name: "second"}}, {Set: set("web", "d9999999999999999ff", "10.1.0.5"), Grants: []dataplane.Grant{grant("192.0.2.1", time.Minute, "a.test")}},
	}
	n.store.ApplyGrants(ops)
	if ops[0].Err != nil || ops[1].Err != nil || ops[2].Err == nil || !dataplane.IsNoSet(ops[3].Err) {
		t.Errorf("results: %v", ops)
	}
	same(t, "the dataplane has", n.others.written, "first", "second")
	same(t, "the rule's", n.holds(t, web), "192.0.2.1 1m0s a.test")
	same(t, "of another address", n.holds(t, set("web", deny, "10.1.0.6")))
	var all []string
	fatal.If(t, n.store.ListGrants([]dataplane.GrantSet{{Rule: deny}}, func(s dataplane.GrantSet, part []dataplane.Grant) {
		all = append(all, fmt.Sprintf("%s %s %d", s.Rule, s.Subject, len(part)))
	}))
	same(t, "all of the rule", all, string(deny)+" 10.1.0.5 1")
	same(t, "the dataplane's", n.holds(t, dataplane.GrantSet{Name: "first"}), "invalid IP 0s of the dataplane")
	ops = []dataplane.GrantOp{{Set: web, Remove: true, Grants: []dataplane.Grant{grant("192.0.2.1", 0, "")}}}
	n.store.ApplyGrants(ops)
	same(t, "after a removal", n.holds(t, web))
}

// TestVerifyAndRepair: lost, changed and foreign entries are found and repaired, and nothing
// else is written.
func TestVerifyAndRepair(t *testing.T) {
	n := newNode(t)
	web, open := set("web", deny, "10.1.0.5"), set("web", accept, "10.1.0.5")
	n.write(t, web, grant("192.0.2.1", time.Minute, "a.test"), grant("192.0.2.2", time.Minute, "b.test"), dataplane.Grant{Addr: addr("192.0.2.3"), Timeout: dataplane.LastingMargin, Due: true, Comment: "over.test"})
	n.write(t, open, grant("192.0.2.1", time.Hour, "a.test"))
	rules := []policy.RuleID{accept, deny}
	verify := func(want int) []dataplane.Deviation {
		t.Helper()
		wrong, err := n.store.Verify(rules, n)
		if fatal.If(t, err); len(wrong) != want {
			t.Errorf("deviations: %v, want %d", wrong, want)
		}
		return wrong
	}
	verify(0)
	subject, foreign := addr("10.1.0.5"), addr("10.1.0.9")
	write := func(remove bool, id policy.RuleID, subject netip.Addr, a string, timeout time.Duration, comment string) {
		n.tables.ApplyEntries([]timed.Op{{Set: string(id), Remove: remove, Entries: []timed.Entry{{Subject: subject, Addr: addr(a), Timeout: timeout, Comment: comment}}}})
	}
	write(true, deny, subject, "192.0.2.3", 0, "") // the kernel ends it
	verify(0)
	write(false, deny, subject, "192.0.2.1", time.Second, "a.test")
	write(true, deny, subject, "192.0.2.2", 0, "")
	write(false, accept, subject, "192.0.2.1", 2*time.Hour, "a.test")
	write(false, accept, subject, "192.0.2.7", time.Hour, "a.test")
	write(false, accept, foreign, "192.0.2.7", time.Hour, "a.test")
	n.another = true
	verify(1) // the other agent's are none, and it moves deadlines
	n.another = false
	wrong := verify(5)
	if first := wrong[0]; first.Set != web || first.Addr != addr("192.0.2.1") {
		t.Errorf("first: %v", first) // what is denied
	}
	fatal.If(t, n.store.Repair(wrong, n))
	verify(0)
	same(t, "denied", n.holds(t, web), "192.0.2.1 1m0s a.test", "192.0.2.2 1m0s b.test")
	same(t, "open", n.holds(t, open), "192.0.2.1 1h0m0s a.test")
	same(t, "foreign", n.holds(t, set("web", accept, "10.1.0.9")))
}
