package enforcer

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// inheritance is what the chains of an earlier agent say: whose each address
// was, and where it was at home. Connections of an address that is still the same
// pod's have been judged; those of another pod's are taken back.
type inheritance struct {
	pods  map[netip.Addr]string // podID
	homes map[netip.Addr]link.Home
	// selected addresses were default-deny: a pod that was only audited has a
	// chain too, and was not judged.
	selected map[netip.Addr]bool
	// peers are the chains that said what the addresses reached, that of everything
	// among them; an address without NetworkPolicies has none.
	peers map[netip.Addr]string
	// owed are addresses from and to which it had yet to judge connections anew.
	owed map[netip.Addr]bool
}

// readInheritance reads whose the addresses were from our chains, and their homes
// from the nft tables, which must have been set up.
func (e *Enforcer) readInheritance(found []iptables.Everything) (inheritance, error) {
	in := inheritance{pods: map[netip.Addr]string{}, homes: map[netip.Addr]link.Home{}, selected: map[netip.Addr]bool{}, peers: map[netip.Addr]string{}}
	for _, f := range ipVersions {
		selected, err := e.k.Sets.List(setPrefix(f) + setSelected)
		if err != nil {
			return in, err
		}
		for _, entry := range selected {
			in.selected[entry.Addr] = true
		}
		for _, all := range found {
			in.takeAll(all[f]["mangle"])
		}
	}
	var err error
	if in.owed, err = e.inheritOwed(); err != nil {
		return in, err
	}
	homes, ports := e.k.Tables.Homes()
	for _, h := range homes {
		in.homes[h.Addr] = link.Home{Iface: h.Iface}
	}
	for _, p := range ports {
		in.homes[p.Addr] = link.Home{Iface: in.homes[p.Addr].Iface, Port: p.Iface}
	}
	return in, nil
}

// takeAll reads the chains of one table.
func (in inheritance) takeAll(chains iptables.Chains) {
	for name, rules := range chains {
		if !strings.HasPrefix(name, chainNames) && !strings.HasPrefix(name, chainPeers) {
			continue
		}
		for _, r := range rules {
			in.take(r)
		}
	}
}

// take reads one rule of a dispatch tree's leaf: -s ADDRESS -g CHAIN.
func (in inheritance) take(rule string) {
	words := strings.Fields(rule)
	if len(words) != 4 || words[0] != "-s" || words[2] != "-g" {
		return
	}
	prefix, err := netip.ParsePrefix(words[1])
	if err != nil || !prefix.IsSingleIP() {
		return
	}
	if id, isPod := strings.CutPrefix(words[3], podChainPrefix); isPod {
		in.pods[prefix.Addr()] = id
	}
	if to := words[3]; to == chainAllow || strings.HasPrefix(to, reachChainPrefix) {
		in.peers[prefix.Addr()] = to
	}
}

// same tells whether an address is still the pod's that it was.
func (in inheritance) same(a netip.Addr, ref policy.PodRef) bool { return in.pods[a] == podID(ref) }

// judged tells whether the connections of an address have been judged for the pod.
func (in inheritance) judged(a netip.Addr, ref policy.PodRef) bool {
	return in.selected[a] && in.same(a, ref)
}

// home returns the home that an earlier agent knew for a pod's address, as long as
// that one stands: a pod that hides its address, or lets another's move, gains
// nothing from a restart.
func (in inheritance) home(a netip.Addr, ref policy.PodRef, stands func(link.Home) bool) (link.Home, bool) {
	h, ok := in.homes[a]
	if !ok || !in.same(a, ref) || h.Iface == "" || !stands(h) {
		return link.Home{}, false
	}
	return h, true
}

// forgetStrangers takes back what an earlier agent had admitted for addresses
// that are not the same pod's any more.
func (e *Enforcer) forgetStrangers(plan dataplane.Subjects) error {
	owner := map[netip.Addr]policy.PodRef{}
	for ref, p := range plan {
		for _, a := range p.Addrs {
			owner[a] = ref
		}
	}
	strangers := slices.AppendSeq(slices.Collect(maps.Keys(e.inherited.pods)), maps.Keys(e.inherited.owed))
	e.strangers = slices.DeleteFunc(strangers, func(a netip.Addr) bool {
		ref, ok := owner[a]
		return ok && e.inherited.same(a, ref)
	})
	return e.forget(e.strangers)
}
