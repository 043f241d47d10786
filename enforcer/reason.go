package enforcer

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unique"

	"github.com/namegate/namegate/policy/fqdn"
)

// grant is one address of a set. What is in the table does not change but for
// queued: a change replaces it.
type grant struct {
	reasons []reason
	queued  moment    // what its place in the queue is for; 0: it has none
	room    [1]reason // for reasons, of which there is seldom more than one
}

func newGrant() *grant {
	g := &grant{}
	g.reasons = g.room[:0]
	return g
}

// reason is one name that opened an address.
type reason struct {
	name  fqdn.Name
	until moment
	by    origin
}

// origin is the matches that opened an address, joined by commas. Thousands of
// grants share one. The zero origin is no match.
type origin unique.Handle[string]

func originOf(by []string) origin {
	switch len(by) {
	case 0:
		return origin{}
	case 1:
		return origin(unique.Make(by[0]))
	}
	return origin(unique.Make(strings.Join(by, ",")))
}

// String returns the matches, "" for none.
func (o origin) String() string {
	if o == (origin{}) {
		return ""
	}
	return unique.Handle[string](o).Value()
}

// ever is before every moment.
const ever = moment(math.MinInt64)

// until is when the last reason ends.
func (g *grant) until() moment {
	t := ever
	for i := range g.reasons {
		t = max(t, g.reasons[i].until)
	}
	return t
}

// covers tells whether the grant holds for a name until a moment or later.
func (g *grant) covers(name fqdn.Name, until moment) bool {
	for i := range g.reasons {
		if r := &g.reasons[i]; r.until >= until && r.name == name {
			return true
		}
	}
	return false
}

// reasonsMax bounds how many names of one address are kept: below a pattern a pod
// may ask for names without end. With the name that ends soonest goes that its
// policy would keep the address open when all the others' are gone.
const reasonsMax = 64

// add takes a reason in, lets go of those that have ended, and tells whether the
// kernel must know: the name is new or ends later than before.
func (g *grant) add(r reason, now moment) bool {
	i := slices.IndexFunc(g.reasons, func(o reason) bool { return o.name == r.name })
	if i >= 0 && r.until <= g.reasons[i].until {
		return false
	}
	if i >= 0 {
		g.reasons[i] = r
		return true
	}
	g.reasons = slices.DeleteFunc(g.reasons, func(o reason) bool { return o.until < now })
	g.reasons = append(g.reasons, r)
	return len(g.reasons) <= reasonsMax || g.dropSoonest().name != r.name
}

// without returns the reasons whose names another grant has not.
func (g *grant) without(other *grant) (out []reason) {
	for _, r := range g.reasons {
		if !slices.ContainsFunc(other.reasons, func(o reason) bool { return o.name == r.name }) {
			out = append(out, r)
		}
	}
	return out
}

// dropSoonest takes the reason out that ends first.
func (g *grant) dropSoonest() reason {
	first := slices.MinFunc(g.reasons, func(a, b reason) int { return cmp.Compare(a.until, b.until) })
	g.reasons = slices.DeleteFunc(g.reasons, func(r reason) bool { return r.name == first.name })
	return first
}

// clone returns a grant that shares nothing that changes.
func (g *grant) clone() *grant {
	c := &grant{queued: g.queued}
	c.reasons = append(c.room[:0], g.reasons...)
	return c
}
