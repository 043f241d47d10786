package xtables

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// phase is when static sets are written.
type phase uint8

const (
	ahead phase = iota // while a state is staged
	beforeRules
	afterRules
)

// due tells whether a set is written in a phase, and whether entries that the state does not want
// go: where an address is at home is known before the rules that ask, and for as long as they do;
// whose packets are dispatched, before any answer by a snapshot leaves, which its pod may use before
// it is isolated.
func (p phase) due(set string) (due, remove bool) {
	switch {
	case p == ahead:
		return strings.HasSuffix(set, setDispatched), false
	case strings.HasSuffix(set, setHome):
		return true, p == afterRules
	}
	return p == beforeRules, p == beforeRules
}

// writeStatic makes the static sets hold a state, as far as they are due.
func (m *mirrors) writeStatic(st dataplane.State, now phase) error {
	for _, s := range m.static(st) {
		due, remove := now.due(s.name)
		if _, exact := m.written[s.name]; !due || exact && now == afterRules {
			continue
		}
		delete(m.written, s.name)
		is := s.fixed()
		is.maybe = func(ipset.Entry) bool { return false }
		d, err := m.compare(is)
		exact := remove || now == beforeRules && len(d.Surplus) == 0
		if !remove {
			d.Surplus = nil
		}
		if err == nil {
			err = ipset.Repair(m.sets, is.header, d, is.want)
		}
		if err != nil {
			return err
		}
		if exact {
			m.written[s.name] = len(is.want)
		}
	}
	return nil
}

// ensureStatic creates the static sets that are not there: without them every write fails.
func (m *mirrors) ensureStatic() error {
	for _, set := range StaticSets() {
		err := m.sets.Ensure(set)
		if ipset.IsMismatch(err) {
			delete(m.written, set.Name)
			err = ipset.Replace(m.sets, set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// static returns the sets that are always there, as a state wants them. Until the state is written
// they may hold more.
func (m *mirrors) static(st dataplane.State) (out []*mirror) {
	for _, set := range StaticSets() {
		size, complete := m.written[set.Name]
		s := &mirror{name: set.Name, bounds: dataplane.Bounds{Min: size, Max: size}, fixed: func() members {
			return members{set, staticEntries(st, set), func(ipset.Entry) bool { return !complete }}
		}}
		if !complete {
			s.bounds.Max = math.MaxInt
		}
		out = append(out, s)
	}
	return out
}

// staticEntries renders a state as entries of a set, each once.
func staticEntries(st dataplane.State, set ipset.Set) (out []ipset.Entry) {
	_, kind, _ := strings.Cut(set.Name, "-")
	for _, p := range st.Subjects {
		addrs, in := p.Addrs, p.Isolated
		switch kind {
		case setDispatched:
			addrs, in = p.Judged, p.Staged
		case setIngress:
			in = p.Ingress != nil
		}
		for _, a := range addrs {
			h, found := p.Homes[a]
			switch {
			case !in || a.Is6() != set.IPv6:
			case kind != setHome:
				out = append(out, ipset.Entry{Addr: a})
			case found && byIface(p, h):
				out = append(out, ipset.Entry{Addr: a, Iface: h.Iface})
			}
		}
	}
	slices.SortFunc(out, func(a, b ipset.Entry) int {
		if by := a.Addr.Compare(b.Addr); by != 0 {
			return by
		}
		return cmp.Compare(a.Iface, b.Iface)
	})
	return slices.Compact(out)
}
