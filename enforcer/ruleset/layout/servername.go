package layout

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// A connection to an entry of a rule that requires the server name is led to the relay of this agent, which connects where
// the name is allowed. The relay's address takes in such connections and nothing else.

const (
	relayPrefix = "servername-"
	leadChain   = relayPrefix + "lead"
	ledChain    = relayPrefix + "led"
	guardChain  = relayPrefix + "guard"

	relaysSet = "relays" // State.Relays.Guarded
)

// Relays are addresses and ports of relays.
type Relays struct {
	// Own are those of this agent to which connections are led, one of a family at most.
	Own []netip.AddrPort
	// Guarded are all of this agent and of earlier ones, sorted.
	Guarded []netip.AddrPort
}

// toRelay are the first items of ordered rules of which some are Led. What is no connection that was led has been dropped.
func toRelay(t *Tiers) []*item {
	if !slices.ContainsFunc(slices.Concat(t.Admin, t.Checked, t.Baseline), func(r *TierRule) bool { return r.Led }) {
		return nil
	}
	return []*item{newItem("fib daddr type local goto admit", each("%[2]s daddr . tcp dport @"+relaysSet+"%[1]s ")...)}
}

// relay makes the chains that lead connections to the relay, and guard it.
func (d *dispatch) relay(s State) {
	led := map[string]*TierRule{}
	for _, t := range s.Tiers {
		for _, r := range slices.Concat(t.Admin, t.Checked, t.Baseline) {
			if r.Led {
				led[r.Entries] = r
			}
		}
	}
	var leads, to []string
	for _, relay := range s.Relays.Own {
		if len(led) == 0 {
			break
		}
		of := families[slices.Index(timed.Families[:], timed.Suffix(relay.Addr()))]
		word := func(text string) string { return fmt.Sprintf(text+"%.0[1]s%.0[2]s", of.suffix, of.ip) }
		leads = append(leads, word("%[2]s saddr . %[2]s daddr @"+timed.KeySet+"%[1]s goto "+ledChain))
		for _, entries := range slices.Sorted(maps.Keys(led)) {
			for _, p := range portLists(led[entries].Ports) {
				if p.protocol == "" || p.protocol == policy.TCP.String() {
					to = append(to, word("meta l4proto tcp "+p.reached()+"%[2]s saddr . %[2]s daddr @"+timed.EntriesPrefix+entries+"-%[1]s dnat "+of.dnat+" to ")+relay.String())
				}
			}
		}
	}
	if len(leads) > 0 {
		d.nodeChain(ledChain, nil, append([]string{"fib daddr type local return"}, to...)...)
		d.nodeChain(leadChain, &nft.Hook{Type: "nat", Hook: "prerouting", Priority: leadPriority}, append([]string{"meta l4proto != tcp return"}, leads...)...)
	}
	if len(s.Relays.Guarded) == 0 {
		return
	}
	rules := append([]string{"ct state established return"}, each(
		"%[2]s daddr . tcp dport @"+relaysSet+"%[1]s ct state new ct direction original ct status dnat %[2]s saddr . ct original %[2]s daddr @"+timed.KeySet+"%[1]s return")...)
	rules = append(rules, "ct state related meta l4proto { icmp, ipv6-icmp } return")
	for _, relay := range s.Relays.Guarded {
		of := families[slices.Index(timed.Families[:], timed.Suffix(relay.Addr()))]
		rules = append(rules, fmt.Sprintf("%s daddr %s counter name %s drop", of.ip, relay.Addr(), deniedCounter))
	}
	d.nodeChain(guardChain, &nft.Hook{Type: "filter", Hook: "input", Priority: guardPriority}, rules...)
}

// relays returns Relays.Guarded of an earlier agent.
func (k InForce) relays(ctx context.Context) (out []netip.AddrPort, err error) {
	all, err := k.Tables.Elements(ctx, Inet, setsOf(relaysSet)...)
	for _, e := range all {
		if len(e.Key) != 2 {
			continue // a catch-all element
		}
		a, bad := netip.ParseAddr(e.Key[0])
		var port uint16
		if _, unread := fmt.Sscan(e.Key[1], &port); bad == nil && unread == nil {
			out = append(out, netip.AddrPortFrom(a, port))
		}
	}
	return out, err
}
