package grants

import (
	"cmp"
	"net/netip"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Import adds the grants to the table and to the kernel that another dataplane holds for the
// sets of the table, but for sets of rules. The other's comments have deadlines where this
// one's have none, and the reverse. Once a pod has views, grants that none of them
// allows are left out.
func (t *Table) Import(from dataplane.Interface) error {
	var keys []dataplane.GrantSet
	for s := range t.all() {
		if s.key.Rule == "" {
			keys = append(keys, from.Named(s.key))
		}
	}
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	err := from.ListGrants(keys, func(key dataplane.GrantSet, part []dataplane.Grant) {
		key.Name = ""
		held[key] = append(held[key], part...)
	})
	if err != nil {
		return err
	}
	for _, p := range *t.pods.Load() {
		for s := range p.all() {
			key := s.key
			key.Name = ""
			if err := t.importSet(p, s, held[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// importSet is Import for one set of a pod.
func (t *Table) importSet(p *podGrants, s *set, there []dataplane.Grant) error {
	if len(there) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.cfg.Clock.read()
	var later []dataplane.Grant
	grants := map[netip.Addr]*grant{}
	for i := range there {
		is := &there[i]
		g, changed := cmp.Or(grants[is.Addr], s.entries[is.Addr]).clone(), false
		for _, r := range t.readReasons(s, is, !t.namesAlone(s), at) {
			if (len(p.views) == 0 || p.allowsName(r.name, "", s.key.Ports)) && g.add(r, at.now) {
				changed = true
			}
		}
		if changed {
			if is.Uses != 0 {
				g.used = at.now // which this dataplane's kernel does not tell
			}
			later, grants[is.Addr] = append(later, t.render(s, is.Addr, g, at)), g
		}
	}
	err := t.apply(s, false, later)
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, g := range grants {
		t.enqueue(s, a, g)
		s.put(a, g, err == nil)
	}
	return err
}

// readGrant returns the reasons of a grant of a set that another agent wrote. None lasts longer
// than the kernel keeps the grant.
func (t *Table) readGrant(s *set, g *dataplane.Grant, at reading) []reason {
	return t.readReasons(s, g, t.namesAlone(s), at)
}

// readReasons is readGrant for comments of names alone, or of names with deadlines.
func (t *Table) readReasons(s *set, g *dataplane.Grant, names bool, at reading) []reason {
	var rs []reason
	if names {
		rs, _ = parseNames(g.Comment)
	} else {
		rs = parseComment(g.Comment)
	}
	for i := range rs {
		r := &rs[i]
		switch r.renew, r.since = t.inUse != nil, ofEarlier; {
		case names:
			r.until = at.now + monotonic(g.Timeout-t.keeps(s))
		case g.Timeout > 0:
			r.until = min(r.until, at.now+monotonic(g.Timeout))
		}
	}
	return rs
}
