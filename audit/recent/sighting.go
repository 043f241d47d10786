package recent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Sighting is one answer that held an address.
type Sighting struct {
	Pod     policy.PodRef // the pod that asked
	Name    fqdn.Name
	Address netip.Addr
	// Asked is zero if it is unknown, as for former grants.
	Asked time.Time
	// TTL of the address in the answer, in seconds.
	TTL uint32
	// Blocked is the guard's reason, "" if it had none.
	Blocked string
	// until is the deadline of a former grant.
	until time.Time
	// before are earlier answers that may hold for longer, the newest first.
	before []earlierAnswer
}

// earlierAnswer is an answer that the guard left: when, and for how many seconds.
type earlierAnswer struct {
	asked time.Time
	ttl   uint32
}

// maxBefore bounds the earlier answers of one name.
const maxBefore = 3

// after returns the sighting with the parts of an earlier sighting of the same name that
// reach beyond it.
func (s Sighting) after(old *Sighting) Sighting {
	if old.until.After(s.until) {
		s.until = old.until
	}
	all := old.before
	if old.Blocked == "" && !old.Asked.IsZero() {
		all = append([]earlierAnswer{{old.Asked, old.TTL}}, all...)
	}
	for _, o := range all {
		// Whatever the bounds of a policy make of TTLs, an answer that is newer and
		// expires later also counts at least as long.
		over := s.Blocked == "" && !s.Asked.Add(seconds(s.TTL)).Before(o.asked.Add(seconds(o.ttl)))
		if !over && len(s.before) < maxBefore {
			s.before = append(s.before, o)
		}
	}
	return s
}

func seconds(ttl uint32) time.Duration { return time.Duration(ttl) * time.Second }

// OpenAt tells whether a match had the address open at a time.
func (s *Sighting) OpenAt(m *policy.Match, at time.Time) bool {
	if at.Before(s.until) {
		return true
	}
	if s.Blocked == "" && !s.Asked.IsZero() && at.Before(s.Asked.Add(m.TTL.Lifetime(s.TTL))) {
		return true
	}
	return slices.ContainsFunc(s.before, func(o earlierAnswer) bool { return at.Before(o.asked.Add(m.TTL.Lifetime(o.ttl))) })
}
