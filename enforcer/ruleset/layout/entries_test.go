package layout_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// named is tiered with rules by name.
func named() layout.State {
	s := tiered()
	s.Entries = []string{"denied", "allowed"}
	s.Tiers[0].ID = "1123456789abcdef"
	s.Tiers[0].Admin = append(s.Tiers[0].Admin,
		&layout.TierRule{Entries: "denied", Action: layout.Reject},
		&layout.TierRule{Entries: "allowed", Action: layout.Accept, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 443, Last: 443}, {Protocol: policy.UDP, First: 0, Last: 65535}, {Protocol: policy.SCTP, First: 7, Last: 9}}})
	return s
}

var far4, far6 = netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:5::7")

// entry is one entry of a pod's.
func entry(to netip.Addr, timeout time.Duration, comment string, held timed.Held) timed.Entry {
	e := timed.Entry{Subject: pod4, Addr: to, Timeout: timeout, Comment: comment, Held: held}
	if to.Is6() {
		e.Subject = pod6
	}
	return e
}

// applied applies ops that must not be refused.
func applied(t testing.TB, tables *stateTables, ops ...timed.Op) {
	t.Helper()
	tables.ApplyEntries(ops)
	for _, op := range ops {
		fatal.If(t, op.Err)
	}
}

// listed returns the entries of sets by name, sorted, and the least time that is left.
func listed(t testing.TB, tables *stateTables, names ...string) (all map[string][]timed.Entry, least time.Duration) {
	t.Helper()
	all, least = map[string][]timed.Entry{}, 1<<62
	fatal.If(t, tables.ListEntries(names, func(set string, part []timed.Entry) {
		for _, e := range part {
			least = min(least, e.Timeout)
			e.Timeout = 0
			all[set] = append(all[set], e)
		}
	}))
	for _, part := range all {
		slices.SortFunc(part, func(a, b timed.Entry) int { return cmp.Or(a.Subject.Compare(b.Subject), a.Addr.Compare(b.Addr)) })
	}
	return all, least
}

// TestEntriesStay: whatever else is written, entries stay, with their time and comments,
// until no state asks for their set.
func TestEntriesStay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	long := strings.Repeat("c", timed.MaxComment)
	onBoth(t, func(t *testing.T, tables *stateTables) {
		s := named()
		fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
		verified(t, tables, s)
		applied(t, tables,
			timed.Op{Set: "denied", Entries: []timed.Entry{entry(far4, time.Hour, long, timed.Absent), entry(far6, time.Hour, `a "b"`, timed.Unknown)}},
			timed.Op{Set: "allowed", Entries: []timed.Entry{entry(far6, time.Hour, "", timed.SameComment)}})
		want := map[string][]timed.Entry{
			"denied":  {entry(far4, 0, long, 0), entry(far6, 0, `a "b"`, 0)},
			"allowed": {entry(far6, 0, "", 0)},
		}
		for i, step := range []func() error{
			func() error { return nil },
			func() error { return tables.Apply(ctx, s) },
			func() error { return tables.Rewrite(ctx, s) },
			func() error { return tables.Setup(ctx) },
			func() error { return tables.Apply(ctx, s) },
			func() error { s.Tiers, s.Peers = nil, nil; return tables.Apply(ctx, s) },
		} {
			fatal.If(t, step())
			got, least := listed(t, tables, "denied", "none", "allowed")
			if !maps.EqualFunc(want, got, slices.Equal) || least > time.Hour || least < 50*time.Minute {
				t.Errorf("after step %d, %v left: %v, want %v", i, least, got, want)
			}
		}
		verified(t, tables, s)
		s.Entries = s.Entries[:1]
		fatal.If(t, tables.Apply(ctx, s))
		verified(t, tables, s)
		delete(want, "allowed")
		if got, _ := listed(t, tables, "denied", "allowed"); !maps.EqualFunc(want, got, slices.Equal) {
			t.Errorf("after a set went: %v", got)
		}
		fatal.If(t, tables.Remove(ctx))
		ops := []timed.Op{{Set: "denied", Entries: []timed.Entry{entry(far4, time.Hour, "", timed.Absent)}}}
		if tables.ApplyEntries(ops); !timed.IsNoSet(ops[0].Err) {
			t.Errorf("without tables: %v", ops[0].Err)
		}
		if got, _ := listed(t, tables, "denied"); len(got) > 0 {
			t.Errorf("without tables: %v", got)
		}
	})
}
