package nft

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// Earlier is what an earlier agent left in the tables.
type Earlier struct {
	// Tables tells whether there are tables of ours.
	Tables bool
	// Selected are its default-deny addresses, sorted, with or without DecideNamespace. The second net
	// has them too.
	Selected []netip.Addr
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
}

// Selected returns the default-deny addresses in the kernel.
func (t *Tables) Selected(ctx context.Context) ([]netip.Addr, error) { return t.addrs(ctx, "selected") }

// GrantSets returns the names of the sets of grants in the kernel, sorted. It may come before Setup.
func (t *Tables) GrantSets(ctx context.Context) ([]string, error) {
	is, err := t.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for set := range is.elements {
		if name, ok := strings.CutPrefix(set, timed.GrantsPrefix); ok && len(name) > len("-4") {
			names[name[:len(name)-len("-4")]] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ReadEarlier reads what is in the kernel. It changes nothing, and may come before Setup.
func (t *Tables) ReadEarlier(ctx context.Context) (out Earlier, err error) {
	out = Earlier{Subjects: map[netip.Addr]string{}, Lists: map[netip.Addr]string{}, TierChains: map[netip.Addr]string{}, GivenBack: map[netip.Addr]netip.Addr{}, NodeGivenBack: map[netip.Addr]netip.Addr{}}
	for i := range t.both() {
		s, err := t.plainSkeleton(i)
		if err != nil {
			return out, err
		}
		is, err := t.contents(ctx, s)
		if err != nil {
			return out, err
		}
		out.Tables, out.JudgesNode = out.Tables || len(is.rules) > 0, out.JudgesNode || is.rules[nodeChain] != nil
		for _, all := range is.elements {
			for _, e := range all {
				out.read(e)
			}
		}
	}
	net, err := t.readNet(ctx, &out.Selected)
	out.Tables = out.Tables || net
	slices.SortFunc(out.Selected, netip.Addr.Compare)
	return out, err
}

// read adds an element.
func (out *Earlier) read(e *knftables.Element) {
	a, err := netip.ParseAddr(e.Key[len(e.Key)-1])
	if err != nil {
		return
	}
	switch name := strings.TrimRight(e.Set+e.Map, "46"); {
	case name == "selected":
		out.Selected = append(out.Selected, a)
	case name == "home" && len(e.Key) == 2 && e.Family == knftables.BridgeFamily:
		out.PortHomes = append(out.PortHomes, Home{Iface: strings.Trim(e.Key[0], `"`), Addr: a})
	case name == "home" && len(e.Key) == 2:
		out.Homes = append(out.Homes, Home{Iface: strings.Trim(e.Key[0], `"`), Addr: a})
	case name == "giveback":
		pair(out.GivenBack, e)
	case name == nodeGiveBackMap:
		pair(out.NodeGivenBack, e)
	case name == tiersMap && len(e.Value) == 1:
		out.TierChains[a] = e.Value[0]
	case name == podsMap && len(e.Value) == 1:
		id, rest, _ := strings.Cut(strings.TrimPrefix(e.Value[0], "goto "+podPrefix), "-")
		out.Subjects[a] = id
		if list, _, _ := strings.Cut(rest, "-"); list != noList {
			out.Lists[a] = list
		}
	}
}

// ReadPeers returns what the kernel holds of sets of peers: of networks as they are joined.
func (t *Tables) ReadPeers(ctx context.Context, sets []PeerSet) ([]PeerSet, error) {
	is, err := t.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, err
	}
	s, err := t.skeletonOf(0, tierObjects{sets: sets})
	if err != nil {
		return nil, err
	}
	var out []PeerSet
	for _, p := range sets {
		found := PeerSet{Name: p.Name, Kind: p.Kind}
		for _, f := range families {
			name := p.of(f).Name
			if is.elements[name] == nil {
				continue
			}
			all, err := t.elements(ctx, s, name)
			if err != nil {
				return nil, err
			}
			for _, e := range all {
				found.read(e.Key)
			}
		}
		out = append(out, found)
	}
	return out, nil
}

// read adds a member in words of nft.
func (p *PeerSet) read(key []string) {
	switch p.Kind {
	case PeerNetworks:
		if r, ok := wire.ParseRange(key[0]); ok {
			p.Networks = append(p.Networks, r.Prefixes()...)
		}
	case PeerPorts:
		if len(key) != 3 {
			return // another program's
		}
		at := PeerPort{Protocol: key[1]}
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

// ListRecheck returns the addresses of the recheck set, none where there is no such set.
func (t *Tables) ListRecheck(ctx context.Context) ([]netip.Addr, error) {
	return t.addrs(ctx, recheckSet)
}

// ChangeRecheck adds addresses to the recheck set, or removes them. Tables of another layout
// get them with the state that replaces them.
func (t *Tables) ChangeRecheck(ctx context.Context, addrs []netip.Addr, remove bool) error {
	if t.otherLayout {
		return nil
	}
	changes := elements{}
	changes.addrs(knftables.InetFamily, recheckSet, addrs)
	err := t.changeElements(ctx, func(tx transaction) {
		for _, e := range changes { // also before their removal: one that is not there is an error
			tx.Add(e)
		}
		if remove {
			for _, e := range changes {
				tx.Delete(e)
			}
		}
	})
	if err != nil {
		t.partial = true
		return fmt.Errorf("change nft set %s %s: %w", TableName, recheckSet, err)
	}
	for key, e := range changes {
		if remove {
			delete(t.applied, key)
		} else if t.applied != nil {
			t.applied[key] = e
		}
	}
	t.written = nil
	return nil
}
