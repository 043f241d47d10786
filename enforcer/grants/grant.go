package grants

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/namegate/namegate/policy/fqdn"
)

// grant is one address of a set. A grant in the table is immutable but for queued, place, uses, used
// and asked, which need Table.mu, and but for until, renew and asked of its reasons, which need the
// set's lock too: any other change replaces it.
type grant struct {
	set     *set
	addr    netip.Addr
	reasons []reason
	queued  monotonic // the moment for which it is in the queue
	place   int       // in the queue, from 1; 0: it has none
	uses    uint64    // the kernel's number when the grant was listed last
	used    monotonic // until when the last use was that a listing told
	asked   uint64    // the last batch in which a request asked for it
	room    [1]reason // for reasons, of which there is seldom more than one
}

// current tells whether the table has the grant. The caller holds Table.mu.
func (g *grant) current() bool { return g.set.entries[g.addr] == g }

// reason is one name that opened an address.
type reason struct {
	name  fqdn.Name
	until monotonic
	by    matches
	// since is when an answer, or Keep, set the deadline; ofEarlier where another agent did.
	since monotonic
	// held is when the last answer held the address, where only its use keeps it since; else 0.
	held monotonic
	// renew: the name is to be judged for use at its deadline. asked: it was found in use, and
	// its deadline is that of the wait for the answer.
	renew, asked bool
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

// never is before every deadline.
const never = monotonic(math.MinInt64)

// until is the deadline of the last reason.
func (g *grant) until() monotonic {
	t := never
	for i := range g.reasons {
		t = max(t, g.reasons[i].until)
	}
	return t
}

// covers tells whether the grant holds for a name until a deadline or later.
func (g *grant) covers(name fqdn.Name, until monotonic) bool {
	for i := range g.reasons {
		if r := &g.reasons[i]; r.until >= until && r.name == name && !r.asked && r.held == 0 {
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
// the kernel changes: the name is new or ends later than before.
func (g *grant) add(r reason, now monotonic) bool {
	if old := g.of(r.name); old != nil {
		switch {
		case old.asked || r.until > old.until:
		case old.held != 0 && r.held == 0: // an answer holds the address again
			r.until = old.until
		default:
			return false
		}
		*old = r
		return true
	}
	g.reasons = slices.DeleteFunc(g.reasons, func(o reason) bool { return o.until < now && !o.renew })
	g.reasons = append(g.reasons, r)
	return len(g.reasons) <= reasonsMax || g.dropSoonest().name != r.name
}

// addTo is add, or for a grant of a lasting rule addLasting by the rule's own time.
func (g *grant) addTo(r reason, now monotonic) bool {
	rule := g.set.key.Rule
	if !rule.Lasting() {
		return g.add(r, now)
	}
	r.until = max(r.until, now+monotonic(rule.Reuse()))
	g.addLasting(r, now)
	return true
}

// addLasting is add for a grant of a lasting rule, which ends as a whole. A name that has no
// room is noted as an unreadable one.
func (g *grant) addLasting(r reason, now monotonic) {
	g.reasons = slices.DeleteFunc(g.reasons, func(o reason) bool { return o.until < now })
	if len(g.reasons) >= reasonsMax && g.of(r.name) == nil {
		r.name, r.by = unreadable, matches{}
	}
	g.reasons = slices.DeleteFunc(g.reasons, func(o reason) bool { return o.name == r.name })
	g.reasons = append(g.reasons, r)
	g.extend(g.until())
}

// extend moves all deadlines.
func (g *grant) extend(until monotonic) {
	for i := range g.reasons {
		g.reasons[i].until = until
	}
}

// takenBy is the reason for another set, by other matches.
func (r reason) takenBy(by []string) reason {
	r.by = matchesOf(by)
	return r
}

// noteUses takes in a number of uses that the kernel told.
func (g *grant) noteUses(uses uint64, now monotonic) {
	if uses == g.uses {
		return
	}
	if g.uses = uses; uses != 0 {
		g.used = now
	}
}

// of returns the reason of a name, nil if there is none.
func (g *grant) of(name fqdn.Name) *reason {
	for i := range g.reasons {
		if g.reasons[i].name == name {
			return &g.reasons[i]
		}
	}
	return nil
}

// without returns the reasons whose names another grant has not.
func (g *grant) without(other *grant) (out []reason) {
	for _, r := range g.reasons {
		if other.of(r.name) == nil {
			out = append(out, r)
		}
	}
	return out
}

// dropSoonest removes and returns the reason that ends first.
func (g *grant) dropSoonest() reason {
	first := slices.MinFunc(g.reasons, func(a, b reason) int { return cmp.Compare(a.until, b.until) })
	g.reasons = slices.DeleteFunc(g.reasons, func(r reason) bool { return r.name == first.name })
	return first
}

// copyOf returns a copy of the grant of an address that may be changed; a grant without reasons where
// the set has none.
func (s *set) copyOf(a netip.Addr) *grant {
	g := &grant{set: s, addr: a}
	g.reasons = g.room[:0]
	if old := s.entries[a]; old != nil {
		g.reasons = append(g.reasons, old.reasons...)
		g.uses, g.used, g.asked = old.uses, old.used, old.asked
	}
	return g
}
