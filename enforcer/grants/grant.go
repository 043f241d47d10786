package grants

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/namegate/namegate/policy/fqdn"
)

// grant is one address of a set. A node has 100,000: it is kept small. A grant in the table is immutable but
// for second, place and uses, which need Table.mu, and but for until, renew, asked and used of its reasons, which need
// the set's lock too: any other change replaces it.
type grant struct {
	set  *set
	addr [16]byte  // IPv4 as mapped into IPv6
	one  [1]reason // the only reason; without a deadline: there is none
	more *[]reason // several; nil: one has it
	uses uint64    // the kernel's number when the grant was listed last
	// second and place are where the queue has the grant, from 1; 0: it does not.
	second uint32
	place  int32
}

// address is the address of the grant.
func (g *grant) address() netip.Addr {
	a := netip.AddrFrom16(g.addr)
	if !g.set.key.IPv6 {
		a = a.Unmap()
	}
	return a
}

// reasons returns the reasons of the grant.
func (g *grant) reasons() reasons {
	switch {
	case g.more != nil:
		return *g.more
	case g.one[0].until == 0:
		return g.one[:0]
	}
	return g.one[:]
}

// setReasons replaces the reasons, which may be made of those of the grant.
func (g *grant) setReasons(all reasons) {
	if len(all) == 1 && all[0].until != 0 {
		g.one[0], g.more = all[0], nil
		return
	}
	if g.one, g.more = [1]reason{}, nil; len(all) > 0 {
		several := []reason(all)
		g.more = &several
	}
}

// current tells whether the table has the grant. The caller holds Table.mu.
func (g *grant) current() bool { return g.set.entries[g.addr] == g }

// until is the deadline of the last reason.
func (g *grant) until() monotonic { return g.reasons().until() }

// add is reasons.add.
func (g *grant) add(r reason, now monotonic) bool {
	all, changed := g.reasons().add(r, now)
	g.setReasons(all)
	return changed
}

// addTo is add, but for a grant of a lasting rule, which ends as a whole: there the name counts for a time at
// least, and a name that has no room is noted as an unreadable one.
func (g *grant) addTo(r reason, now monotonic, least time.Duration) bool {
	if rule := g.set.key.Rule; !rule.Lasting() {
		if all := g.reasons(); rule.ServerName() && len(all) >= reasonsMax && all.of(r.name) == nil {
			g.setReasons(all.but(all.soonest())) // the new name is what is connected to now
		}
		return g.add(r, now)
	}
	r.until = max(r.until, now+monotonic(least))
	all := slices.DeleteFunc(g.reasons(), func(o reason) bool { return o.until < now })
	if len(all) >= reasonsMax && all.of(r.name) == nil {
		r.name, r.by = unreadable, matches{}
	}
	g.setReasons(append(all.but(r.name), r))
	g.extend(g.until())
	return true
}

// extend moves all deadlines.
func (g *grant) extend(until monotonic) {
	all := g.reasons()
	for i := range all {
		all[i].until = until
	}
}

// noteUses takes in a number of uses that the kernel told.
func (g *grant) noteUses(uses uint64) {
	if uses != g.uses && uses != 0 {
		g.used()
	}
	g.uses = uses
}

// used notes that a listing told that the address was used.
func (g *grant) used() {
	all := g.reasons()
	for i := range all {
		all[i].used = true
	}
}

// at returns the grant of an address, nil for none.
func (s *set) at(a netip.Addr) *grant {
	if a.Is6() != s.key.IPv6 {
		return nil
	}
	return s.entries[a.As16()]
}

// copyOf returns a copy of the grant of an address that may be changed; a grant without reasons where
// the set has none.
func (s *set) copyOf(a netip.Addr) *grant {
	g := &grant{set: s, addr: a.As16()}
	if old := s.at(a); old != nil {
		g.one, g.uses = old.one, old.uses
		if old.more != nil {
			g.setReasons(slices.Clone(*old.more))
		}
	}
	return g
}

// reason is one name that opened an address.
type reason struct {
	name  fqdn.Name
	until monotonic
	by    matches
	// since is when an answer, or Keep, set the deadline; ofEarlier where another agent did.
	since monotonic
	// held is when the last answer held the address, in seconds, where only its use keeps it since; else 0.
	held uint32
	// renew: the name is to be judged for use at its deadline. asked: it was found in use, and
	// its deadline is that of the wait for the answer. used: a listing told of a use since.
	renew, asked, used bool
}

// heldAt is held as a time.
func (r *reason) heldAt() monotonic { return monotonic(r.held) * monotonic(time.Second) }

// takenBy is the reason for another set, by other matches.
func (r reason) takenBy(by []string) reason {
	r.by, r.used = matchesOf(by), false
	return r
}

// matches are the matches that opened an address, joined by commas. Thousands of
// grants share them. The zero value is no match.
type matches unique.Handle[string]

func matchesOf(by []string) matches {
	switch len(by) {
	case 0:
		return matches{}
	case 1:
		return matches(unique.Make(by[0]))
	}
	return matches(unique.Make(strings.Join(by, ",")))
}

// String returns the matches, "" for none.
func (m matches) String() string {
	if m == (matches{}) {
		return ""
	}
	return unique.Handle[string](m).Value()
}

// reasons are the names by which an address is open, or was.
type reasons []reason

// never is before every deadline.
const never = monotonic(math.MinInt64)

// until is the last deadline.
func (all reasons) until() monotonic {
	t := never
	for i := range all {
		t = max(t, all[i].until)
	}
	return t
}

// covers tells whether a name holds until a deadline or later.
func (all reasons) covers(name fqdn.Name, until monotonic) bool {
	for i := range all {
		if r := &all[i]; r.until >= until && r.name == name && !r.asked && r.held == 0 {
			return true
		}
	}
	return false
}

// reasonsMax bounds how many names of one address are kept: a pod may ask for names
// without end below a pattern. The name that ends soonest is dropped; its policy then no
// longer keeps the address open when the policies of the others are gone.
const reasonsMax = 64

// add adds a reason, drops the reasons that have ended, and tells whether the entry in
// the kernel changes: the name is new or ends later than before. It may change all.
func (all reasons) add(r reason, now monotonic) (reasons, bool) {
	if old := all.of(r.name); old != nil {
		switch {
		case old.asked || r.until > old.until:
		case old.held != 0 && r.held == 0: // an answer holds the address again
			r.until = old.until
		default:
			return all, false
		}
		*old = r
		return all, true
	}
	all = append(slices.DeleteFunc(all, func(o reason) bool { return o.until < now && !o.renew }), r)
	if len(all) <= reasonsMax {
		return all, true
	}
	first := all.soonest()
	return all.but(first), first != r.name
}

// soonest returns the name that ends first.
func (all reasons) soonest() fqdn.Name {
	return slices.MinFunc(all, func(a, b reason) int { return cmp.Compare(a.until, b.until) }).name
}

// but returns all without a name, in the same place.
func (all reasons) but(name fqdn.Name) reasons {
	return slices.DeleteFunc(all, func(r reason) bool { return r.name == name })
}

// of returns the reason of a name, nil if there is none.
func (all reasons) of(name fqdn.Name) *reason {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// holds tells whether a name holds after a moment.
func (all reasons) holds(name fqdn.Name, now monotonic) bool {
	r := all.of(name)
	return r != nil && r.until > now
}

// without returns the reasons whose names others have not.
func (all reasons) without(others reasons) (out reasons) {
	for _, r := range all {
		if others.of(r.name) == nil {
			out = append(out, r)
		}
	}
	return out
}
