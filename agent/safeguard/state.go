package safeguard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/api/nnp"
)

// AwayLimit is how long the API server may be unavailable while an unconfirmed generation is
// enforced. Within it an API server restarts, and a node that lost it is still found Ready.
const AwayLimit = time.Minute

// Policy is an enforcing policy with a safeguard that selects this node.
type Policy struct {
	Name, UID  string
	Generation int64
	Confirmed  bool
	Within     time.Duration // spec.safeguard.confirmWithin
}

// Moment is the time of a Step.
type Moment struct {
	Boot string        // of the machine; times of different boots cannot be compared
	At   time.Duration // of the kernel's monotonic clock
	Away time.Duration // for how long the API server has been unavailable, 0 while it is not
}

// Reason is why a generation is only audited; "" for one that is enforced.
type Reason string

// The reasons.
const (
	NotConfirmed Reason = "NotConfirmed"
	NoAPIServer  Reason = "NoAPIServer"
)

// State are the unconfirmed generations on this node. The zero value knows none.
type State struct {
	Boot string `json:"boot"`
	// Pending are by the name of their policy.
	Pending map[string]Pending `json:"pending"`
}

// Pending is one unconfirmed generation.
type Pending struct {
	UID        string        `json:"uid"`
	Generation int64         `json:"generation"`
	Within     time.Duration `json:"within"` // in nanoseconds, as Since
	Since      time.Duration `json:"since"`  // when its time began
	Turned     Reason        `json:"turned,omitempty"`
}

// Step returns the state at a moment, with the policies of then. s is not changed.
func (s State) Step(now Moment, policies []Policy) State {
	next := State{Boot: now.Boot, Pending: map[string]Pending{}}
	for _, p := range policies {
		if p.Confirmed {
			continue
		}
		g, known := s.Pending[p.Name]
		if !known || g.UID != p.UID || g.Generation != p.Generation {
			g = Pending{UID: p.UID, Generation: p.Generation, Since: now.At}
		} else if s.Boot != now.Boot {
			g.Since = now.At
		}
		g.Within = p.Within
		passed := now.At - g.Since
		switch {
		case g.Turned != "":
		case passed >= g.Within:
			g.Turned = NotConfirmed
		case min(passed, now.Away) >= AwayLimit:
			g.Turned = NoAPIServer
		}
		next.Pending[p.Name] = g
	}
	return next
}

// Equal tells whether two states say the same.
func (s State) Equal(o State) bool { return s.Boot == o.Boot && maps.Equal(s.Pending, o.Pending) }

// Turned returns the policies that the node only audits, by name, with a sentence about why, and
// how to confirm each.
func (s State) Turned() map[string]string {
	out := map[string]string{}
	for name, g := range s.Pending {
		if g.Turned != "" {
			out[name] = g.message(name)
		}
	}
	return out
}

// unconfirmed returns the policies that are enforced and wait for confirmation, by name.
func (s State) unconfirmed() map[string]bool {
	out := map[string]bool{}
	for name, g := range s.Pending {
		if g.Turned == "" {
			out[name] = true
		}
	}
	return out
}

// message says why a turned generation is audited.
func (g Pending) message(name string) string {
	why := fmt.Sprintf("generation %d was not confirmed within %s", g.Generation, Text(g.Within))
	if g.Turned == NoAPIServer {
		why = fmt.Sprintf("the API server was unavailable for a minute while generation %d was not confirmed", g.Generation)
	}
	return fmt.Sprintf("%s: to enforce it again, run %s, or change the policy", why, nnp.ConfirmCommand(name, g.Generation))
}

// Text returns a duration as a policy writes it: 5m, 1h30m.
func Text(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// names returns the names of the turned policies, sorted.
func (s State) names() []string { return slices.Sorted(maps.Keys(s.Turned())) }
