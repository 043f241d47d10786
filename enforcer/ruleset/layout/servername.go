package layout

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
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

	dialledChain = relayPrefix + "dialled"

	relaysSet   = "relays"   // State.Relays.Guarded
	diallingSet = "dialling" // local ports and destinations of Dialling
)

// diallingFor is longer than the relay waits for a destination, and maxDialling is for more than it opens meanwhile.
const (
	diallingFor = 15 * time.Second
	maxDialling = 1 << 16
)

// Relays are addresses and ports of relays.
type Relays struct {
	// Own are those of this agent to which connections are led, one of a family at most.
	Own []netip.AddrPort
	// Guarded are all of this agent and of earlier ones, sorted.
	Guarded []netip.AddrPort
	// Dials are of the packets of the relay's own sockets: they have Candidate, and not Admitted.
	Dials Bits
}

// toRelay are the first items of ordered rules of which some are Led. What is no connection that was led has been dropped, and
// one that is cut does not come back.
func toRelay(t *Tiers) []*lists.Item {
	if !slices.ContainsFunc(slices.Concat(t.Admin, t.Checked, t.Baseline), func(r *TierRule) bool { return r.Led }) {
		return nil
	}
	return []*lists.Item{lists.NewItem("ct state new fib daddr type local goto admit", lists.Each("%[2]s daddr . tcp dport @"+relaysSet+"%[1]s ")...)}
}

// ledSubjects are the subjects of rules that are Led.
func (s State) ledSubjects() (all []netip.Addr) {
	for i := range s.Tiers {
		if toRelay(&s.Tiers[i]) != nil {
			all = append(all, s.Tiers[i].Subjects...)
		}
	}
	return all
}

// relay makes the chains that lead connections to the relay, and guard it.
func (d *dispatch) relay(s State) {
	led, from := map[string]*TierRule{}, map[string][]netip.Addr{}
	for _, t := range s.Tiers {
		for _, r := range slices.Concat(t.Admin, t.Checked, t.Baseline) {
			if r.Led {
				// Entries of another subject may be left of rules that it has no more.
				led[r.Entries], from[r.Entries] = r, append(from[r.Entries], t.Subjects...)
			}
		}
	}
	var leads, to []string
	for _, relay := range s.Relays.Own {
		if len(led) == 0 {
			break
		}
		of := lists.Families[familyOf(relay.Addr())]
		word := func(text string) string { return fmt.Sprintf(text+"%.0[1]s%.0[2]s", of.Suffix, of.IP) }
		leads = append(leads, word("%[2]s saddr . %[2]s daddr @"+timed.KeySet+"%[1]s goto "+ledChain))
		for _, entries := range slices.Sorted(maps.Keys(led)) {
			sources := ""
			for _, a := range slices.SortedFunc(slices.Values(from[entries]), netip.Addr.Compare) {
				if a.Is4() == relay.Addr().Is4() {
					sources += a.String() + ", "
				}
			}
			if sources == "" {
				continue
			}
			for _, p := range lists.PortLists(led[entries].Ports) {
				if p.Protocol == "" || p.Protocol == policy.TCP.String() {
					to = append(to, word("meta l4proto tcp "+p.Reached()+"%[2]s saddr { "+sources+"} %[2]s saddr . %[2]s daddr @"+timed.EntriesPrefix+entries+"-%[1]s dnat "+of.DNAT+" to ")+relay.String())
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
	// Rules about what is reached do not know what a connection dialled that is cut: they might admit it again.
	rules := slices.Concat([]string{"ct state established " + has("ct mark", s.Relays.Dials.Admitted) + " return"}, lists.Each(
		"%[2]s daddr . tcp dport @"+relaysSet+"%[1]s ct state established ct direction original %[2]s saddr @selected%[1]s goto deny"), []string{"ct state established return"}, lists.Each(
		"%[2]s daddr . tcp dport @"+relaysSet+"%[1]s ct state new ct direction original ct status dnat %[2]s saddr . ct original %[2]s daddr @"+timed.KeySet+"%[1]s return"))
	rules = append(rules, "ct state related meta l4proto { icmp, ipv6-icmp } return")
	for _, relay := range s.Relays.Guarded {
		of := lists.Families[familyOf(relay.Addr())]
		rules = append(rules, fmt.Sprintf("%s daddr %s counter name %s drop", of.IP, relay.Addr(), deniedCounter))
	}
	// Another program may lead what the relay dials elsewhere, as a Service with an external IP, past the rules of pods
	// there. What is forwarded may have the bit too.
	d.nodeChain(dialledChain, &nft.Hook{Type: "filter", Hook: postrouting, Priority: verdictPriority},
		has("meta mark", s.Relays.Dials.Candidate)+fmt.Sprintf(" meta mark & %#x == 0", s.Relays.Dials.Admitted)+
			" meta l4proto tcp ct direction original ct status dnat fib saddr type local counter name "+deniedCounter+" drop")
	d.nodeChain(guardChain, &nft.Hook{Type: "filter", Hook: "input", Priority: guardPriority}, rules...)
}

// relayedHooks are where the node's rules for what it forwards judge what the relay dials, in place of those for what its
// own sockets send.
var relayedHooks = map[string]nodeHook{
	"output":    newNodeHook("relayed", nft.Hook{Hook: "output"}, policy.Forwarded, false, "accept"),
	postrouting: newNodeHook("relayedtranslated", nft.Hook{Hook: postrouting}, policy.Forwarded, false, "accept"),
}

// relayed returns the first rules of a hook of what the node's sockets send.
func (d *dispatch) relayed(n *Node, h *nodeHook) (rules []string) {
	if !d.relays || h.traffic != policy.Local || h.ingress {
		return nil
	}
	of := relayedHooks[h.Hook.Hook]
	if len(n.lists(&of)) > 0 {
		d.denials(&of)
	}
	d.nodeChain(of.chain, nil, append(d.judged(n, &of), "accept")...)
	return lists.Each("tcp sport . ct original %[2]s daddr . ct original proto-dst @" + diallingSet + "%[1]s goto " + of.chain)
}

// Dialling has connections from a local port to a destination judged as those that the node forwards, for diallingFor.
func (k InForce) Dialling(ctx context.Context, local uint16, to netip.AddrPort) error {
	set := setsOf(diallingSet)[familyOf(to.Addr())]
	return k.Tables.Note(ctx, set, strconv.Itoa(int(local))+" . "+to.Addr().String()+" . "+strconv.Itoa(int(to.Port())))
}

// familyOf is the place of an address in lists.Families.
func familyOf(a netip.Addr) int { return slices.Index(timed.Families[:], timed.Suffix(a)) }

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
