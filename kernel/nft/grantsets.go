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

// Earlier is what an earlier agent left of the Namespace tier.
type Earlier struct {
	// Tables tells whether there are tables of ours.
	Tables bool
	// Selected are its default-deny addresses, with or without DecideNamespace. The second net
	// has them too.
	Selected []netip.Addr
	// Subjects and Lists are the IDs of the subjects of addresses, and of their rule lists.
	Subjects, Lists map[netip.Addr]string
	// Grants are the names of its sets of grants.
	Grants []string
}

// Selected returns the default-deny addresses in the kernel.
func (t *Tables) Selected(ctx context.Context) ([]netip.Addr, error) { return t.addrs(ctx, "selected") }

// ReadEarlier reads what is in the kernel. It changes nothing, and may come before Setup.
func (t *Tables) ReadEarlier(ctx context.Context) (out Earlier, err error) {
	if out.Selected, err = t.Selected(ctx); err != nil {
		return out, err
	}
	pods, err := t.elementsOfFamilies(ctx, podsMap)
	if err != nil {
		return out, err
	}
	out.Subjects, out.Lists = map[netip.Addr]string{}, map[netip.Addr]string{}
	for _, e := range pods {
		a, err := netip.ParseAddr(e.Key[0])
		if err != nil || len(e.Value) != 1 {
			continue
		}
		id, rest, _ := strings.Cut(strings.TrimPrefix(e.Value[0], "goto "+podPrefix), "-")
		out.Subjects[a] = id
		if list, _, _ := strings.Cut(rest, "-"); list != noList {
			out.Lists[a] = list
		}
	}
	is, err := t.reader.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return out, fmt.Errorf("read nft table %s %s: %w", knftables.InetFamily, TableName, err)
	}
	if out.Tables, err = t.readNet(ctx, &out.Selected); err != nil {
		return out, err
	}
	bridge, err := t.reader.objects(ctx, knftables.BridgeFamily, TableName)
	if err != nil {
		return out, fmt.Errorf("read nft table %s %s: %w", knftables.BridgeFamily, TableName, err)
	}
	out.Tables = out.Tables || len(is.rules)+len(bridge.rules) > 0
	names := map[string]bool{}
	for set := range is.elements {
		if name, ok := strings.CutPrefix(set, timed.GrantsPrefix); ok && len(name) > len("-4") {
			names[name[:len(name)-len("-4")]] = true
		}
	}
	out.Grants = slices.Sorted(maps.Keys(names))
	return out, nil
}

// ReadPeers returns what the kernel holds of sets of peers: of networks as they are joined.
func (t *Tables) ReadPeers(ctx context.Context, sets []PeerSet) ([]PeerSet, error) {
	is, err := t.reader.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s %s: %w", knftables.InetFamily, TableName, err)
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
