package layout

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/nft/wire"
	"github.com/namegate/namegate/policy"
)

// InForce is what the tables in the kernel hold, also those that another agent wrote, and the parts of them that are
// changed without a state. Its methods but Heartbeat, Disable and HoldUnconfirmed may come before Setup.
type InForce struct{ Tables *nft.Tables }

// addrs returns the addresses that a set of each family holds, sorted.
func (k InForce) addrs(ctx context.Context, id nft.ID, set string) (out []netip.Addr, err error) {
	all, err := k.Tables.Elements(ctx, id, setsOf(set)...)
	for _, e := range all {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}

// pairs returns the elements of maps from address to address.
func (k InForce) pairs(ctx context.Context, name string) (map[netip.Addr]netip.Addr, error) {
	out := map[netip.Addr]netip.Addr{}
	words, err := k.words(ctx, name)
	for key, value := range words {
		if to, err := netip.ParseAddr(value); err == nil {
			out[key] = to
		}
	}
	return out, err
}

// words returns the elements of maps from address to a word.
func (k InForce) words(ctx context.Context, name string) (map[netip.Addr]string, error) {
	out := map[netip.Addr]string{}
	all, err := k.Tables.Elements(ctx, Inet, setsOf(name)...)
	for _, e := range all {
		if key, err := netip.ParseAddr(e.Key[0]); err == nil && len(e.Value) == 1 {
			out[key] = e.Value[0]
		}
	}
	return out, err
}

// named calls do with the elements of sets whose keys are a word and an address.
func (k InForce) named(ctx context.Context, id nft.ID, set string, do func(word string, a netip.Addr)) error {
	all, err := k.Tables.Elements(ctx, id, setsOf(set)...)
	for _, e := range all {
		if len(e.Key) != 2 {
			continue // a catch-all element
		}
		if a, err := netip.ParseAddr(e.Key[1]); err == nil {
			do(strings.Trim(e.Key[0], `"`), a)
		}
	}
	return err
}

// Serving returns the addresses to which the kernel redirects queries now, by the address
// that pods dial.
func (k InForce) Serving(ctx context.Context) (map[netip.Addr]netip.Addr, error) {
	return k.pairs(ctx, "intercept")
}

// Probed returns the selected pods whose self-test query came to interception in
// the last three seconds.
func (k InForce) Probed(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, probedSet)
}

// Selected returns the default-deny addresses.
func (k InForce) Selected(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, "selected")
}

// IngressSubjects returns the addresses with rules for ingress.
func (k InForce) IngressSubjects(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, ingressSet)
}

// DecidedNamespace tells whether the tables decide the Namespace tier alone, or did until an agent
// that ended since.
func (k InForce) DecidedNamespace(ctx context.Context) (bool, error) {
	alone, err := k.IgnoreCandidates(ctx)
	if alone || err != nil {
		return alone, err
	}
	chains, sets, err := k.Tables.Objects(ctx, Net)
	return len(chains)+len(sets) > 0, err
}

// IgnoreCandidates tells whether the tables decide the Namespace tier alone.
func (k InForce) IgnoreCandidates(ctx context.Context) (bool, error) {
	chains, sets, err := k.Tables.Objects(ctx, Inet)
	return sets[podsMap+lists.Families[0].Suffix] && !chains[candidatesChain], err
}

// GrantSets returns the names of the sets of grants, sorted.
func (k InForce) GrantSets(ctx context.Context) (out []string, err error) {
	_, sets, err := k.Tables.Objects(ctx, Inet)
	for set := range sets {
		name, is := strings.CutPrefix(set, timed.GrantsPrefix)
		if name, ofFamily := strings.CutSuffix(name, "-"+lists.Families[0].Suffix); is && ofFamily {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, err
}

// Earlier is what an earlier agent left in the tables.
type Earlier struct {
	// Tables tells whether there are tables of ours.
	Tables bool
	// Selected are its default-deny addresses, sorted. The second net
	// has them too. Ingress are those with rules for ingress.
	Selected, Ingress []netip.Addr
	// Subjects and Lists are the IDs of the subjects of addresses, and of their rule lists. TierChains
	// are the chains of their ordered rules: the name of one stands for all rules of the subject.
	Subjects, Lists, TierChains map[netip.Addr]string
	// JudgesNode: there were rules of the node.
	JudgesNode bool
	// Homes are those of the IP layer, PortHomes of bridge ports.
	Homes, PortHomes []Home
	// GivenBack are the serving addresses whose replies are given back, with what pods dialled, and
	// NodeGivenBack those of the node's own queries, with the resolvers.
	GivenBack, NodeGivenBack map[netip.Addr]netip.Addr
	// Relays are where it checked server names.
	Relays []netip.AddrPort
}

// ReadEarlier reads what an earlier agent left.
func (k InForce) ReadEarlier(ctx context.Context) (Earlier, error) {
	out := Earlier{Subjects: map[netip.Addr]string{}, Lists: map[netip.Addr]string{}}
	for _, id := range All {
		chains, _, err := k.Tables.Objects(ctx, id)
		if err != nil {
			return out, err
		}
		out.Tables, out.JudgesNode = out.Tables || len(chains) > 0, out.JudgesNode || slices.ContainsFunc(nodeHooks, func(h nodeHook) bool { return chains[h.chain] })
	}
	var errs [11]error
	var net []netip.Addr
	var pods map[netip.Addr]string
	out.Selected, errs[0] = k.Selected(ctx)
	net, errs[1] = k.addrs(ctx, Net, "selected")
	errs[2] = k.named(ctx, Inet, "home", func(iface string, a netip.Addr) { out.Homes = append(out.Homes, Home{iface, a}) })
	errs[3] = k.named(ctx, Bridge, "home", func(port string, a netip.Addr) { out.PortHomes = append(out.PortHomes, Home{port, a}) })
	out.GivenBack, errs[4] = k.pairs(ctx, "giveback")
	out.NodeGivenBack, errs[5] = k.pairs(ctx, nodeGiveBackMap)
	out.TierChains, errs[6] = k.words(ctx, tiersMap)
	pods, errs[7] = k.words(ctx, podsMap)
	errs[8] = k.named(ctx, Inet, subjectsSet, func(id string, a netip.Addr) { out.Subjects[a] = id })
	out.Ingress, errs[9] = k.IngressSubjects(ctx)
	out.Relays, errs[10] = k.relays(ctx)
	out.Selected = append(out.Selected, net...)
	slices.SortFunc(out.Selected, netip.Addr.Compare)
	out.Selected = slices.Compact(out.Selected)
	for a, chain := range pods {
		_, rest, _ := strings.Cut(strings.TrimPrefix(chain, "goto "+podPrefix), "-")
		if list, _, _ := strings.Cut(rest, "-"); list != noList {
			out.Lists[a] = list
		}
	}
	return out, cmp.Or(errs[:]...)
}

// ReadPeers returns what the kernel holds of sets of peers: of networks as they are joined.
func (k InForce) ReadPeers(ctx context.Context, sets []PeerSet) ([]PeerSet, error) {
	var out []PeerSet
	for _, p := range sets {
		found := PeerSet{Name: p.Name, Kind: p.Kind}
		all, err := k.Tables.Elements(ctx, Inet, peerSets(&p)...)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			readMember(&found, e.Key)
		}
		out = append(out, found)
	}
	return out, nil
}

// readMember adds a member in words of nft.
func readMember(p *PeerSet, key []string) {
	switch p.Kind {
	case policy.PeerNetworks:
		if r, ok := wire.ParseRange(key[0]); ok {
			p.Networks = append(p.Networks, r.Prefixes()...)
		}
	case policy.PeerPorts:
		if len(key) != 3 {
			return // another program's
		}
		at := policy.PeerPort{Protocol: policy.Protocol(wire.Protocols[key[1]])}
		a, err := netip.ParseAddr(key[0])
		if _, scanned := fmt.Sscan(key[2], &at.Port); err == nil && scanned == nil {
			at.Addr = a
			p.Ports = append(p.Ports, at)
		}
	default:
		if a, err := netip.ParseAddr(key[0]); err == nil {
			p.Addrs = append(p.Addrs, a)
		}
	}
}

// ListRecheck returns the addresses of the recheck set.
func (k InForce) ListRecheck(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, recheckSet)
}

// ChangeRecheck adds addresses to the recheck set, or removes them. Tables of another layout
// get them with the state that replaces them.
func (k InForce) ChangeRecheck(ctx context.Context, addrs []netip.Addr, remove bool) error {
	changes := elements{nft.Elements{}}
	changes.addrs(recheckSet, addrs)
	return k.Tables.ChangeElements(ctx, Inet, changes.Sorted(), remove)
}
