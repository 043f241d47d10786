package nft

import (
	"context"
	"maps"
	"net/netip"

	"sigs.k8s.io/knftables"
)

// Serving returns the addresses to which the kernel redirects queries now, by the address
// that pods dial, also those that another agent wrote.
func (t *Tables) Serving(ctx context.Context) (map[netip.Addr]netip.Addr, error) {
	out := map[netip.Addr]netip.Addr{}
	all, err := t.elementsOfFamilies(ctx, "intercept")
	for _, e := range all {
		pair(out, e)
	}
	return out, err
}

// pair reads an element of a map from address to address.
func pair(into map[netip.Addr]netip.Addr, e *knftables.Element) {
	key, err := netip.ParseAddr(e.Key[0])
	if err != nil || len(e.Value) != 1 {
		return
	}
	if value, err := netip.ParseAddr(e.Value[0]); err == nil {
		into[key] = value
	}
}

// Probed returns the selected pods whose self-test query came to interception in
// the last three seconds.
func (t *Tables) Probed(ctx context.Context) ([]netip.Addr, error) {
	return t.addrs(ctx, probedSet)
}

// addrs returns the addresses that a set of each family holds.
func (t *Tables) addrs(ctx context.Context, set string) ([]netip.Addr, error) {
	var out []netip.Addr
	all, err := t.elementsOfFamilies(ctx, set)
	for _, e := range all {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil {
			out = append(out, a)
		}
	}
	return out, err
}

// elementsOfFamilies returns the elements of the inet table's set or map of each family.
func (t *Tables) elementsOfFamilies(ctx context.Context, set string) ([]*knftables.Element, error) {
	s, err := t.plainSkeleton(0)
	if err != nil {
		return nil, err
	}
	var out []*knftables.Element
	for _, f := range families {
		found, err := t.elements(ctx, s, set+f.suffix)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// A restarted agent finds the rules and nearly all elements of its tables as it wants them. It
// reads them, which takes milliseconds, and writes the difference: a transaction of all takes the
// program nft some 20 ms, and its end waits for the kernel.

// laidOut tells whether a table consists of the layout, and of nothing else, whatever its
// elements. Without whole it may have objects of states besides.
func (s *skeleton) laidOut(is *contents, whole bool) bool {
	want := s.wanted(nil)
	objects := &contents{hooks: is.hooks, rules: maps.Clone(is.rules), forms: is.forms, dormant: is.dormant, elements: map[string]elements{}}
	ofState := func(name string, ours bool) bool { return !ours && !whole && ofTiers(name) }
	maps.DeleteFunc(objects.rules, func(chain string, _ []string) bool { return ofState(chain, want.rules[chain] != nil) })
	for set := range is.elements {
		if _, ours := want.elements[set]; !ofState(set, ours) {
			objects.elements[set] = elements{}
		}
	}
	found, _ := want.deviations(s.family, s.table, objects)
	return len(found) == 0
}

// held returns the elements of a table, ready for a difference to all, which are those of a state.
// ok tells whether a difference is enough.
func (t *Tables) held(ctx context.Context, s *skeleton, all elements) (out elements, ok bool) {
	is, err := t.contents(ctx, s)
	if err != nil || !s.laidOut(is, true) {
		return nil, false
	}
	out = elements{}
	same := map[string]bool{}
	for set, want := range s.wanted(all).elements {
		switch {
		case volatile(set):
		case maps.EqualFunc(want, is.elements[set], sameElement):
			same[set] = true
		case s.intervals[set]: // the kernel does not tell which prefixes made a range
			return nil, false
		default:
			maps.Copy(out, is.elements[set])
		}
	}
	for key, e := range all {
		if e.Family == s.family && e.Table == s.table && same[e.Set+e.Map] {
			out[key] = e
		}
	}
	return out, true
}

// readBack makes the elements in the kernel those of the last write, where the tables have all else
// of a state.
func (t *Tables) readBack(ctx context.Context, s State) bool {
	tiers := s.tierObjects(t.tiers)
	want, applied := s.elements(tiers), elements{}
	for i := range t.both() {
		of, err := t.skeleton(i, tiers)
		if err != nil {
			return false
		}
		held, ok := t.held(ctx, of, want)
		if !ok {
			return false
		}
		maps.Copy(applied, held)
	}
	if t.namespace {
		of, err := t.net.skeleton()
		if err != nil {
			return false
		}
		held, ok := t.held(ctx, of, s.netElements())
		if !ok {
			return false
		}
		t.net.applied, t.net.partial = held, false
	} else if there, err := t.hasNet(ctx); there || err != nil {
		return false
	}
	t.CompareKeys()
	if lost, err := t.CheckKeys(tiers.entries); len(lost) > 0 || err != nil {
		return false
	}
	t.setTiers(tiers)
	t.applied, t.written, t.partial = applied, nil, false
	return true
}
