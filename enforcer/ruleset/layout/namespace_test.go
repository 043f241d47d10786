package layout_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// subjects is full with Namespace tiers of every form.
func subjects() layout.State {
	s := full
	s.Serving, s.DNS = []netip.Addr{serve4, serve6}, []netip.Addr{dns4, dns6}
	s.GrantSets = []layout.GrantSet{{Name: "0123456789ab", Ported: true}, {Name: "0123456789ab-any"}, {Name: "0123456789ab-aabbccdd"}}
	s.Subjects = []layout.Subject{
		{ID: "0123456789ab", Addrs: []netip.Addr{pod4, pod6}, List: "0123456789abcdef", Grants: []layout.GrantSet{
			s.GrantSets[0], s.GrantSets[1],
			{Name: s.GrantSets[2].Name, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 1, Last: 9}, {Protocol: policy.UDP, First: 0, Last: 65535}, {Protocol: policy.SCTP, First: 7, Last: 7}}},
		}},
		{ID: "ba9876543210", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.6")}},
	}
	s.Lists = []layout.RuleList{{ID: "0123456789abcdef", Rules: []*layout.TierRule{{Peers: "pods", Action: layout.Accept}, {Peers: "networks", Action: layout.Accept, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 80, Last: 80}}}}}}
	s.Peers = tiered().Peers
	s.Staged, s.Recheck = s.Subjects[1].Addrs, []netip.Addr{pod4, far6}
	return s
}

// TestSubjectsComeAndGo: chains, sets of grants and the second net follow the state, and what
// a later agent reads is what an earlier one wrote.
func TestSubjectsComeAndGo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, tables := subjects(), writtenSubjects(t, full)
	without := ruleset(t)
	verified(t, tables, full)
	fatal.If(t, tables.Apply(ctx, s))
	verified(t, tables, s)
	next := subjects()
	next.Subjects[0].Grants, next.Subjects[0].List, next.Staged = next.Subjects[0].Grants[:1], "", nil
	next.GrantSets, next.Selected, next.Pods = next.GrantSets[:1], next.Selected[:1], nil
	fatal.If(t, tables.Apply(ctx, next))
	verified(t, tables, next)

	later := laterAgent(t)
	later.decideNamespace()
	grants, err := later.GrantSets(ctx)
	fatal.If(t, err)
	earlier, err := later.ReadEarlier(ctx)
	fatal.If(t, err)
	if !earlier.Tables || !slices.Equal(earlier.Selected, next.Selected) || !slices.Equal(grants, []string{"0123456789ab"}) ||
		earlier.Subjects[pod6] != "0123456789ab" || earlier.Subjects[next.Subjects[1].Addrs[0]] != "ba9876543210" || len(earlier.Lists) != 0 {
		t.Errorf("read back: %+v", earlier)
	}
	fatal.If(t, errors.Join(later.Setup(ctx), later.Apply(ctx, s)))
	if earlier, err = later.ReadEarlier(ctx); err != nil || earlier.Lists[pod4] != "0123456789abcdef" {
		t.Errorf("lists read back: %+v, %v", earlier, err)
	}
	peers, err := later.ReadPeers(ctx, []layout.PeerSet{{Name: "pods"}, {Name: "networks", Kind: policy.PeerNetworks}, {Name: "missing"}})
	if err != nil || len(peers[0].Addrs) != 2 || !slices.Equal(peers[1].Networks, s.Peers[1].Networks) || peers[2].Addrs != nil {
		t.Errorf("peers read back: %+v, %v", peers, err)
	}
	recheck, err := later.ListRecheck(ctx)
	if err != nil || len(recheck) != 2 {
		t.Errorf("recheck set read back: %v, %v", recheck, err)
	}
	fatal.If(t, errors.Join(later.ChangeRecheck(ctx, []netip.Addr{far4}, false), later.ChangeRecheck(ctx, []netip.Addr{pod4, serve4}, true)))
	changed := s
	changed.Recheck = []netip.Addr{far4, far6}
	verified(t, later, changed)
	fatal.If(t, later.Apply(ctx, full))
	diff.Error(t, without, ruleset(t), "an earlier state left something")
	// Without subjects the other dataplane's tables follow, and no second net is left.
	other := laterAgent(t)
	fatal.If(t, errors.Join(other.Setup(ctx), other.Apply(ctx, full)))
	verified(t, other, full)
	if now := ruleset(t); strings.Contains(now, layout.NetTableName) {
		t.Error("the second net is left")
	}
	// A ruleset that was saved before brings it back.
	piped(t, "add table inet namegate-net; add chain inet namegate-net forward { type filter hook forward priority 50; policy drop; }")
	verified(t, other, full, "nft table inet namegate-net")
	fatal.If(t, other.Rewrite(ctx, full))
	verified(t, other, full)
}

// writtenSubjects returns tables of the kernel that decide the Namespace tiers of a state.
func writtenSubjects(t *testing.T, s layout.State) *stateTables {
	t.Helper()
	tables, ctx := inKernel(t), context.Background()
	tables.decideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	return tables
}

// TestTheNetIsVerified: each object of the second net that goes is found and restored.
func TestTheNetIsVerified(t *testing.T) {
	t.Parallel()
	s := subjects()
	tables := writtenSubjects(t, s)
	repaired(t, tables, s, tables.Rewrite, map[string]string{
		"delete table inet namegate-net":                       "nft table inet namegate-net",
		"flush chain inet namegate-net forward":                "nft chain inet namegate-net forward",
		"flush set inet namegate-net selected6":                "nft set inet namegate-net selected6",
		"add element inet namegate-net ifaces { other }":       "nft set inet namegate-net ifaces",
		"flush map inet namegate pods4":                        "nft set inet namegate pods4",
		"delete element inet namegate staged4 { 10.1.0.6 }":    "nft set inet namegate staged4",
		"add set inet namegate grants-x-4 { type ipv4_addr; }": "nft set inet namegate grants-x-4",
	})
	// A state that is written already is written again where the last look found a deviation.
	fatal.If(t, tables.Apply(t.Context(), s))
	repaired(t, tables, s, tables.Apply, map[string]string{"flush set inet namegate-net selected4": "nft set inet namegate-net selected4"})
}

// TestGrantsOnTheKernel: grants of each form are written, refreshed, listed and removed, and
// outlive tables that are made anew.
func TestGrantsOnTheKernel(t *testing.T) {
	t.Parallel()
	tables := inKernel(t)
	grantsComeAndGo(t, tables)
	tables.Checkpoint()
	piped(t, "add chain inet namegate other")
	ctx, s := context.Background(), subjects()
	verified(t, tables, s, "nft chain inet namegate other")
	fatal.If(t, tables.Rewrite(ctx, s))
	diff.Equal(t, 4, len(granted(t, tables)), "grants in tables made anew")
}

// granted returns the entries of all sets of grants, without their timeouts, sorted.
func granted(t *testing.T, tables *stateTables) (out []timed.Entry) {
	t.Helper()
	names := []string{"0123456789ab", "0123456789ab-any", "0123456789ab-aabbccdd"}
	fatal.If(t, tables.ListGrants(names, func(_ string, part []timed.Entry) {
		for _, e := range part {
			if e.Timeout < time.Minute || e.Timeout > 2*time.Hour {
				t.Errorf("%v left", e.Timeout)
			}
			e.Timeout = 0
			out = append(out, e)
		}
	}))
	return out
}

func grantsComeAndGo(t *testing.T, tables *stateTables) {
	t.Helper()
	ctx, s := context.Background(), subjects()
	tables.decideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.AddSets(ctx, nil, s.GrantSets), tables.Apply(ctx, s), tables.Heartbeat(ctx), tables.Heartbeat(ctx)))
	long := strings.Repeat("long ", 49)
	ported := func(a netip.Addr, protocol uint8, port uint16, comment string, h timed.Held) timed.Entry {
		return timed.Entry{Addr: a, Protocol: protocol, Port: port, Timeout: time.Hour, Comment: comment, Held: h}
	}
	ops := []timed.Op{
		{Set: "0123456789ab", Grants: true, Entries: []timed.Entry{ported(far4, 6, 443, "a", timed.Absent), ported(far4, 17, 443, "b", timed.Absent), ported(far6, 132, 9, long, timed.Absent)}},
		{Set: "0123456789ab-any", Grants: true, Entries: []timed.Entry{{Addr: far4, Timeout: time.Hour, Comment: "c", Held: timed.Absent}, {Addr: far6, Timeout: time.Hour, Comment: "d"}}},
		{Set: "missing", Grants: true, Entries: []timed.Entry{{Addr: far4, Timeout: time.Hour}}},
		{Set: "0123456789ab-any", Grants: true, Entries: []timed.Entry{{Subject: pod4, Addr: far4, Timeout: time.Hour}}},
	}
	tables.ApplyEntries(ops)
	if ops[0].Err != nil || ops[1].Err != nil || !timed.IsNoSet(ops[2].Err) || ops[3].Err == nil || timed.IsNoSet(ops[3].Err) {
		t.Errorf("results: %v, %v, %v, %v", ops[0].Err, ops[1].Err, ops[2].Err, ops[3].Err)
	}
	applied(t, tables, timed.Op{Set: "0123456789ab", Grants: true, Remove: true, Entries: []timed.Entry{ported(far4, 17, 443, "", 0), ported(far4, 6, 80, "", 0)}},
		timed.Op{Set: "0123456789ab", Grants: true, Entries: []timed.Entry{ported(far4, 6, 443, "changed", timed.Unknown)}})
	got := granted(t, tables)
	for _, want := range []timed.Entry{{Addr: far4, Protocol: 6, Port: 443, Comment: "changed"}, {Addr: far6, Protocol: 132, Port: 9, Comment: long}, {Addr: far4, Comment: "c"}, {Addr: far6, Comment: "d"}} {
		if !slices.Contains(got, want) || len(got) != 4 {
			t.Errorf("grants %+v, want %+v", got, want)
		}
	}
	verified(t, tables, s)
}

// TestTheNetAloneIsRead: where another program removed the other tables, a later agent knows
// from the second net that there are tables in force, and for which subjects.
func TestTheNetAloneIsRead(t *testing.T) {
	t.Parallel()
	s := subjects()
	writtenSubjects(t, s)
	piped(t, "delete table inet namegate")
	later := laterAgent(t)
	later.decideNamespace()
	earlier, err := later.ReadEarlier(t.Context())
	fatal.If(t, err)
	slices.SortFunc(earlier.Selected, netip.Addr.Compare)
	if want := slices.SortedFunc(slices.Values(s.Selected), netip.Addr.Compare); !earlier.Tables || !slices.Equal(earlier.Selected, want) {
		t.Errorf("read back: %+v, want %v", earlier, want)
	}
}

// TestPeersBesideCatchAllElements: an element that another program adds for every key is no peer.
func TestPeersBesideCatchAllElements(t *testing.T) {
	t.Parallel()
	s := subjects()
	s.Lists[0].Rules = append(s.Lists[0].Rules, &layout.TierRule{Peers: "named", Action: layout.Accept})
	tables := writtenSubjects(t, s)
	piped(t, "add element inet namegate peers-pods-4 { * }; add element inet namegate peers-named-4 { * }")
	peers, err := tables.ReadPeers(t.Context(), s.Peers)
	if err != nil || len(peers[0].Addrs) != 2 || !slices.Equal(peers[1].Networks, s.Peers[1].Networks) || len(peers[2].Ports) != 2 {
		t.Errorf("peers read back: %+v, %v", peers, err)
	}
}
