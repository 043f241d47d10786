package entries_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

const (
	deny = policy.RuleID("d00112233445566773c") // for a minute
)

var addr = netip.MustParseAddr

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

func newNode(t *testing.T, others dataplane.GrantWriter) *entries.Store {
	clock := testclock.New(time.Unix(1_700_000_000, 0))
	tables := nft.New(layout.All[:1], knftables.NewFake(knftables.InetFamily, layout.TableName))
	tables.Store.FakeClock(clock.Now)
	var memo layout.Memo
	fatal.If(t, tables.Setup(context.Background(), memo.Layouts(layout.Mode{Candidates: true})[:1]))
	sets := layout.EntrySets(string(deny))
	for _, ports := range []policy.PortSet{"tcp/443", ranged, policy.AnyPort} {
		sets = append(sets, ruleset.GrantSet(ofPorts("web", ports, false)).Sets()...)
	}
	fatal.If(t, tables.AddSets(context.Background(), layout.Inet, sets))
	return entries.New(tables.Store, others)
}

const ranged = policy.PortSet("tcp/8000-8080")

// ofPorts is the grants of a pod on a port set.
func ofPorts(pod string, ports policy.PortSet, ipv6 bool) dataplane.GrantSet {
	return entries.Named(dataplane.GrantSet{Pod: policytest.Ref(pod), Ports: ports, IPv6: ipv6})
}

// set is the grants of a pod with an address for a rule.
func set(pod string, id policy.RuleID, subject string) dataplane.GrantSet {
	return dataplane.GrantSet{Pod: policytest.Ref(pod), Ports: "tcp/443", Rule: id, Subject: addr(subject), IPv6: addr(subject).Is6()}
}

// holds returns the addresses of a set, with their timeouts and comments.
func holds(t *testing.T, store *entries.Store, s dataplane.GrantSet) (out []string) {
	t.Helper()
	fatal.If(t, store.ListGrants([]dataplane.GrantSet{s}, func(is dataplane.GrantSet, part []dataplane.Grant) {
		for _, g := range part {
			if is == s {
				out = append(out, fmt.Sprintf("%s %v %s", g.Addr, g.Timeout, g.Comment))
			}
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
	plane := &others{refused: "second"}
	store := newNode(t, plane)
	web := set("web", deny, "10.1.0.5")
	ops := []dataplane.GrantOp{
		{Set: dataplane.GrantSet{Name: "first"}}, {Set: web, Grants: []dataplane.Grant{grant("192.0.2.1", time.Minute, "a.test")}},
		{Set: dataplane.GrantSet{Name: "second"}}, {Set: set("web", "d9999999999999999ff", "10.1.0.5"), Grants: []dataplane.Grant{grant("192.0.2.1", time.Minute, "a.test")}},
	}
	store.ApplyGrants(ops)
	if ops[0].Err != nil || ops[1].Err != nil || ops[2].Err == nil || !dataplane.IsNoSet(ops[3].Err) {
		t.Errorf("results: %v", ops)
	}
	same(t, "the dataplane has", plane.written, "first", "second")
	same(t, "the rule's", holds(t, store, web), "192.0.2.1 1m0s a.test")
	same(t, "of another address", holds(t, store, set("web", deny, "10.1.0.6")))
	var all []string
	fatal.If(t, store.ListGrants([]dataplane.GrantSet{{Rule: deny}}, func(s dataplane.GrantSet, part []dataplane.Grant) {
		all = append(all, fmt.Sprintf("%s %s %d", s.Rule, s.Subject, len(part)))
	}))
	same(t, "all of the rule", all, string(deny)+" 10.1.0.5 1")
	same(t, "the dataplane's", holds(t, store, dataplane.GrantSet{Name: "first"}), "invalid IP 0s of the dataplane")
	ops = []dataplane.GrantOp{{Set: web, Remove: true, Grants: []dataplane.Grant{grant("192.0.2.1", 0, "")}}}
	store.ApplyGrants(ops)
	same(t, "after a removal", holds(t, store, web))
}

// TestPortSetsInTables: the sets of a pod's single ports share one of the tables, each other port set has
// its own, and each gets its grants back.
func TestPortSetsInTables(t *testing.T) {
	store := newNode(t, nil)
	var ops []dataplane.GrantOp
	sets := []dataplane.GrantSet{ofPorts("web", "tcp/443", false), ofPorts("web", "tcp/443", true), ofPorts("web", "udp/53", false), ofPorts("web", ranged, false), ofPorts("web", policy.AnyPort, false)}
	for i, s := range sets {
		a := fmt.Sprintf("192.0.2.%d", i)
		if s.IPv6 {
			a = fmt.Sprintf("2001:db8::%d", i)
		}
		ops = append(ops, dataplane.GrantOp{Set: s, Grants: []dataplane.Grant{grant(a, time.Minute, s.Name)}})
	}
	ops = append(ops, dataplane.GrantOp{Set: ofPorts("other", ranged, false), Grants: ops[0].Grants})
	for range 2 { // the second call keeps nothing of the first
		store.ApplyGrants(ops)
		for i, s := range sets {
			g := ops[i].Grants[0]
			fatal.If(t, ops[i].Err)
			same(t, string(s.Ports), holds(t, store, s), fmt.Sprintf("%s 1m0s %s", g.Addr, g.Comment))
		}
		if last := ops[len(sets)].Err; !dataplane.IsNoSet(last) {
			t.Errorf("of a pod without a set: %v", last)
		}
	}
	ops = []dataplane.GrantOp{{Set: sets[2], Remove: true, Grants: ops[2].Grants}}
	store.ApplyGrants(ops)
	same(t, "after a removal", slices.Concat(holds(t, store, sets[2]), holds(t, store, sets[0])), "192.0.2.0 1m0s "+sets[0].Name)
}
