package layout_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// checkedNames is named with rules that require the server name, and relays.
func checkedNames() layout.State {
	s := named()
	tcp := func(first, last uint16) policy.PortRange {
		return policy.PortRange{Protocol: policy.TCP, First: first, Last: last}
	}
	s.Entries = append(s.Entries, "s01", "s02", "s03")
	s.Tiers[0].Checked = []*layout.TierRule{{Entries: "s01", Ports: []policy.PortRange{tcp(443, 443), tcp(8000, 9000)}, Action: layout.Reject, Led: true}}
	s.Tiers[1].Baseline = append([]*layout.TierRule{{Entries: "s02", Ports: []policy.PortRange{tcp(0, 65535)}, Action: layout.Reject, Led: true}, {Entries: "s03", Action: layout.Reject, Led: true}}, s.Tiers[1].Baseline...)
	s.Tiers[0].ID, s.Tiers[1].ID = "2123456789abcdef", "2edcba9876543210"
	s.Relays = layout.Relays{Dials: layout.Bits{Admitted: 0x40, Candidate: 0x20}, Own: relays("169.254.20.70:9955 [fd5c:7a1e:93b4::1:7]:9955"), Guarded: relays("169.254.20.70:9955 169.254.20.71:9956 [fd5c:7a1e:93b4::1:7]:9955")}
	return s
}

func relays(text string) (out []netip.AddrPort) {
	for word := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddrPort(word))
	}
	return out
}

// TestServerNamesComeAndGo: without rules that require the server name nothing is left of them, without a relay nothing leads
// there, and a later agent knows the relays.
func TestServerNamesComeAndGo(t *testing.T) {
	t.Parallel()
	ctx, without, with := context.Background(), named(), checkedNames()
	tables := written(t, without)
	before := ruleset(t)
	fatal.If(t, tables.Apply(ctx, with))
	verified(t, tables, with)
	rules := ruleset(t)
	for text, want := range map[string]int{
		"dnat ip to 169.254.20.70:9955": 3, "dnat ip6 to [fd5c:7a1e:93b4::1:7]:9955": 1, "ip daddr 169.254.20.71 counter": 1,
		"169.254.20.71 . 9956": 1, "chain servername-lead": 1, "chain servername-guard": 1, "chain servername-dialled": 1,
	} {
		diff.Equal(t, want, strings.Count(rules, text), text)
	}
	diff.Equal(t, 2*len(with.Tiers), strings.Count(rules, "@relays4 ct state new fib daddr type local goto admit")+strings.Count(rules, "@relays6 ct state new fib daddr type local goto admit"), "rules that admit what is led")
	later := laterAgent(t)
	earlier, err := later.ReadEarlier(ctx)
	fatal.If(t, err)
	slices.SortFunc(earlier.Relays, netip.AddrPort.Compare)
	diff.Equal(t, true, slices.Equal(with.Relays.Guarded, earlier.Relays), "relays read back", earlier.Relays)

	alone := with
	alone.Relays = layout.Relays{Own: with.Relays.Own[:1], Guarded: with.Relays.Guarded[:1], Dials: with.Relays.Dials}
	fatal.If(t, tables.Apply(ctx, alone))
	verified(t, tables, alone)
	diff.Equal(t, 0, strings.Count(ruleset(t), "dnat ip6 to ["), "without a relay of IPv6")
	alone.Relays.Own = nil
	fatal.If(t, tables.Apply(ctx, alone))
	if rules := ruleset(t); strings.Contains(rules, "servername-le") || !strings.Contains(rules, "servername-guard") {
		t.Error("without a relay in force a connection is led, or the address is open")
	}
	fatal.If(t, tables.Apply(ctx, without))
	diff.Error(t, before, ruleset(t), "left of rules with server names")
}

// TestServerNamesAreVerified: what another program takes of them is found and comes back, also beside rules of the node.
func TestServerNamesAreVerified(t *testing.T) {
	t.Parallel()
	s := withNode(checkedNames())
	tables := written(t, s)
	repaired(t, tables, s, tables.Rewrite, map[string]string{
		"flush chain inet namegate servername-lead":                                                   "nft chain inet namegate servername-lead",
		"flush chain inet namegate servername-guard":                                                  "nft chain inet namegate servername-guard",
		"flush chain inet namegate servername-dialled\ndelete chain inet namegate servername-dialled": "nft chain inet namegate servername-dialled",
		"flush set inet namegate relays4":                                                             "nft set inet namegate relays4",
		"insert rule inet namegate servername-led accept":                                             "nft chain inet namegate servername-led",
		"flush chain inet namegate node-relayed":                                                      "nft chain inet namegate node-relayed",
	})
	fatal.If(t, errors.Join(tables.Dialling(t.Context(), 40000, relays("198.51.100.7:443")[0]), tables.Dialling(t.Context(), 40000, relays("198.51.100.7:443")[0]), tables.Dialling(t.Context(), 40001, relays("[2001:db8:5::7]:443")[0])))
	rules := ruleset(t)
	for _, element := range []string{"40000 . 198.51.100.7 . 443", "40001 . 2001:db8:5::7 . 443"} {
		diff.Equal(t, 1, strings.Count(rules, element), element)
	}
	verified(t, tables, s)
}
