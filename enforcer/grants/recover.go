package grants

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// origin is where another agent left grants.
type origin struct {
	at        reading // before they were listed
	elsewhere bool    // in another dataplane
	// gone: that agent is not there any more, adopted: nothing else is in the sets yet.
	gone, adopted bool
	// view is of the pod that has an address, for sets of rules.
	view func(netip.Addr) *policy.View
}

// Holds implements dataplane.Grants.
func (t *Table) Holds(key dataplane.GrantSet) bool { return t.get(key) != nil }

// Adopt implements dataplane.Grants. A grant without a readable reason is taken in without
// one: TakeBack removes it, like every grant that no policy allows.
func (t *Table) Adopt(held map[dataplane.GrantSet][]dataplane.Grant, listed time.Time) {
	from := origin{at: reading{now: t.cfg.Clock.at(listed)}, adopted: true}
	t.mu.Lock()
	defer t.mu.Unlock()
	var pods []policy.PodRef
	for key := range held {
		pods = append(pods, key.Pod)
	}
	t.addPods(pods...)
	for key, part := range held {
		s := t.newSet(key)
		t.place(s)
		_ = t.takeIn(s, part, from) // nothing is written
	}
}

// Recover takes in the grants that another agent left in sets of rules, of the pods that have their
// subjects by view and the rules, and removes those of other pods unless that agent may be there still.
// gone: it is not. Then the grants are taken in that it wrote last in all other sets too. It wrote them by its
// policies: the next CarryOver and TakeBack judge them.
func (t *Table) Recover(rules []policy.RuleID, view func(netip.Addr) *policy.View, gone bool) error {
	keys := ofRules(rules)
	if gone {
		for s := range t.all() {
			if s.key.Rule == "" {
				keys = append(keys, s.key)
			}
		}
	}
	return t.recoverFrom(t.cfg.Kernel, keys, origin{gone: gone, view: view})
}

// ofRules returns the sets of rules, of all subjects.
func ofRules(rules []policy.RuleID) (keys []dataplane.GrantSet) {
	for _, id := range rules {
		keys = append(keys, dataplane.GrantSet{Rule: id})
	}
	return keys
}

// ofPod completes a set of a rule by the pod that has its subject, and tells whether that has the rule.
func ofPod(key dataplane.GrantSet, view func(netip.Addr) *policy.View) (dataplane.GrantSet, bool) {
	if v := view(key.Subject); v != nil {
		key.Pod = v.Pod.PodRef
		for r := range v.Rules.Identified() {
			if r.ID == key.Rule && !r.Audit {
				key.Ports = r.Ports
				return key, true
			}
		}
	}
	return key, false
}

// Import adds the grants to the table and to the kernel that another dataplane holds for the
// sets of the table, but for sets of rules.
func (t *Table) Import(from dataplane.Interface) error {
	var keys []dataplane.GrantSet
	for s := range t.all() {
		if s.key.Rule == "" {
			keys = append(keys, from.Named(s.key))
		}
	}
	return t.recoverFrom(from, keys, origin{elsewhere: true})
}

// recoverFrom lists sets and takes in the grants of each.
func (t *Table) recoverFrom(kernel dataplane.GrantWriter, keys []dataplane.GrantSet, from origin) error {
	from.at = t.cfg.Clock.read()
	held, err := list(kernel, keys)
	for key, part := range held {
		if err == nil {
			err = t.recoverSet(key, part, from)
		}
	}
	return err
}

// list returns the grants of sets.
func list(kernel dataplane.GrantWriter, keys []dataplane.GrantSet) (map[dataplane.GrantSet][]dataplane.Grant, error) {
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	if len(keys) == 0 {
		return held, nil
	}
	err := kernel.ListGrants(keys, func(key dataplane.GrantSet, part []dataplane.Grant) {
		held[key] = append(held[key], part...)
	})
	return held, err
}

// recoverSet takes in the grants of one set, and removes those that no pod may inherit.
func (t *Table) recoverSet(key dataplane.GrantSet, part []dataplane.Grant, from origin) error {
	asked := true
	if key.Rule != "" {
		if key, asked = ofPod(key, from.view); key.Pod == (policy.PodRef{}) {
			return nil
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.get(key)
	if s == nil && asked && key.Rule != "" {
		s = t.newSet(key)
		t.place(s)
	}
	switch {
	case asked && s != nil:
		return t.takeIn(s, part, from)
	case from.elsewhere, key.Rule != "" && !from.gone && t.cfg.Coexisting():
		return nil
	case key.Rule == "": // of ports that no rule asks, beside others of its name
		return ignoreNoSet(t.apply(key, true, part))
	}
	s = t.newSet(key) // of a rule that the subject's pod does not have: it would inherit them with the rule
	return t.apply(key, true, slices.DeleteFunc(slices.Clone(part), func(is dataplane.Grant) bool {
		_, _, _, own := s.parse(nil, is.Comment)
		return own
	}))
}

// takeIn takes in grants of a set. Once its pod has views, names are left out that these do not allow, unless the
// other agent is gone, and what is taken in is written: a grant may have ended since it was listed. The caller holds mu.
func (t *Table) takeIn(s *set, part []dataplane.Grant, from origin) error {
	live, now := len(s.of.views) > 0 && !from.adopted, from.at.now
	if from.adopted {
		now = never // the table has the names of the comments that stay as they are, also ended ones
	}
	var surplus, write []dataplane.Grant
	var written, kept []*grant
	var room reasons
	for i := range part {
		is := &part[i]
		reasons, whole, own := t.readGrant(s, room[:0], is, from.at)
		room = reasons
		g, changed := s.copyOf(is.Addr), s.at(is.Addr) == nil
		switch {
		case own:
		case !changed: // the pod before wrote over it
			write, written = append(write, t.render(g, from.at)), append(written, g)
			write[len(write)-1].Held = dataplane.Unknown
			continue
		case from.gone || !t.cfg.Coexisting():
			surplus = append(surplus, *is)
			continue
		default:
			continue
		}
		for _, r := range reasons {
			if !live || from.gone || r.name == unreadable || s.of.allowsName(r.name, s.to) {
				changed = g.merge(r, now) || changed
			}
		}
		switch {
		case !from.elsewhere:
			g.noteUses(is.Uses)
		case is.Uses != 0:
			g.used() // which this dataplane's kernel does not tell
		}
		switch {
		case (live || from.elsewhere) && len(g.reasons()) == 0:
			if from.gone {
				surplus = append(surplus, *is)
			}
		case live || from.elsewhere:
			want := t.render(g, from.at)
			shorter := !want.Due && want.Timeout-is.Timeout > time.Duration(recoverSlack)
			if want.Held = dataplane.Unknown; changed || !from.elsewhere && (shorter || want.Comment != is.Comment) {
				write, written = append(write, want), append(written, g)
			}
		case !s.uncertain[is.Addr] && (whole || string(s.appendComment(nil, g.reasons())) == is.Comment):
			kept = append(kept, g)
		default:
			written = append(written, g) // and uncertain, until it is
		}
	}
	s.of.closed = s.of.closed || len(write) > 0
	if err := t.apply(s.key, true, surplus); err != nil {
		return err
	}
	err := t.apply(s.key, false, write)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		s.entries = make(map[[16]byte]*grant, len(kept)+len(written))
	}
	for _, g := range kept {
		s.put(g, true)
	}
	for _, g := range written {
		s.put(g, err == nil && len(write) > 0)
	}
	return err
}

// recoverSlack is by how much a listing may tell a deadline later than it is.
const recoverSlack = monotonic(time.Second)

// merge is addTo for a reason of another agent. A grant of a lasting rule keeps its time.
func (g *grant) merge(r reason, now monotonic) bool {
	old := g.reasons().of(r.name)
	return (old == nil || r.until > old.until+recoverSlack) && g.addTo(r, now, 0)
}

// readGrant appends the reasons of a grant that another agent wrote, as parse does. None lasts longer than
// the kernel keeps the grant.
func (t *Table) readGrant(s *set, room reasons, is *dataplane.Grant, at reading) (all reasons, whole, own bool) {
	all, kept, whole, own := s.parse(room, is.Comment)
	lasting := s.key.Rule.Lasting()
	if !whole && own && lasting {
		all = append(all, reason{name: unreadable})
	}
	for i := range all {
		r := &all[i]
		switch r.renew, r.since = t.inUse != nil && !lasting, ofEarlier; {
		case r.until == 0:
			r.until = at.now + monotonic(is.Timeout-kept)
		case is.Timeout > 0:
			r.until = min(r.until, at.now+monotonic(is.Timeout))
		}
	}
	return all, whole && (s.deadlines || kept == keeps(s.key.Rule, t.cfg.Hold)), own
}

// ignoreNoSet returns an error but for one of a set that is not there.
func ignoreNoSet(err error) error {
	if dataplane.IsNoSet(err) {
		return nil
	}
	return err
}
