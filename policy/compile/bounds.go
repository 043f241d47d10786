package compile

import (
	"fmt"

	"github.com/namegate/namegate/policy"
)

// The bounds of all policies that select one pod together. The schema bounds each policy,
// but not their number: without these bounds one namespace could take all the memory,
// time and sets of a node.
const (
	// MaxViewMatches bounds the matches.
	MaxViewMatches = 16384
	// MaxViewLabels bounds the labels of the patterns with a wildcard: each may be
	// a place of the matcher that a question visits.
	MaxViewLabels = 4 * MaxViewMatches
	// MaxViewPortSets bounds the distinct port sets of the enforcing policies: the
	// kernel has 65,472 sets in a network namespace, and each of these takes one of
	// both families.
	MaxViewPortSets = 256
)

// leftOut is the rules of one policy that a bound leaves out of a ruleset.
type leftOut struct {
	id    string // of the policy
	path  string // of the first rule
	rules int
	names string // "" for all, else the pattern of the first match that is left out
	why   string // the bound, and what to do
}

const (
	tooManyMatches  = "have more than %d matches, or %d labels in patterns, together; write fewer, or a wildcard for several"
	tooManyOpenings = "open them on more than %d different sets of ports, or with as many different ttl, together; give rules the same ports and ttl, or a range for several"
	tooManyRules    = "cluster policies accept them by more than %d rules with the same subject; write fewer rules, or a range of ports for several"
	tooManyPortSets = "open more than %d different sets of ports together; give rules the same ports, or a range for several"
)

// bounds is the room that policies have together.
type bounds struct {
	room  cost // its sets are of ports
	ports map[policy.PortSet]struct{}
	left  []leftOut
}

// withinBounds returns policies, which are sorted, without the rules beyond a bound, and
// these rules. Enforcing policies come first, so that audited ones take none of their
// room; else the order of the names counts.
func withinBounds(policies []*parsed) ([]*parsed, []leftOut) {
	b := bounds{room: cost{matches: MaxViewMatches, labels: MaxViewLabels, sets: MaxViewPortSets}, ports: map[policy.PortSet]struct{}{}}
	kept := make([]*parsed, len(policies))
	for _, audit := range []bool{false, true} {
		for i, p := range policies {
			if p.Audit == audit {
				kept[i] = b.take(p)
			}
		}
	}
	return kept, b.left
}

// take returns p, or a copy of it that has only the rules for which there is room.
func (b *bounds) take(p *parsed) *parsed {
	rest := *p.Policy
	rest.Rules = nil
	matches := &leftOut{id: p.ID, why: fmt.Sprintf(tooManyMatches, MaxViewMatches, MaxViewLabels)}
	ports := &leftOut{id: p.ID, why: fmt.Sprintf(tooManyPortSets, MaxViewPortSets)}
	for _, rule := range p.Rules {
		needs := cost{matches: len(rule.Matches), labels: wildLabels(rule.Matches)}
		if _, known := b.ports[rule.Ports]; !p.Audit && !known {
			needs.sets = 1
		}
		var over *leftOut
		switch {
		case needs.matches > b.room.matches || needs.labels > b.room.labels:
			over = matches
		case !needs.fits(b.room):
			over = ports
		}
		if over != nil {
			if over.rules++; over.rules == 1 {
				over.path = rule.Path
			}
			continue
		}
		b.room = b.room.minus(needs)
		if needs.sets > 0 {
			b.ports[rule.Ports] = struct{}{}
		}
		rest.Rules = append(rest.Rules, rule)
	}
	whole := true
	for _, over := range []*leftOut{matches, ports} {
		if over.rules > 0 {
			b.left = append(b.left, *over)
			whole = false
		}
	}
	if whole {
		return p
	}
	part := *p
	part.Policy = &rest
	return &part
}

// wildLabels returns how many labels the patterns with a wildcard have.
func wildLabels(matches []*policy.Match) int {
	n := 0
	for _, m := range matches {
		n += m.Pattern.WildLabels()
	}
	return n
}

// overOpenings returns the rules of which an index leaves out a match, by policy.
func overOpenings(x *policy.Index, why string) (left []leftOut) {
	of, last := map[string]int{}, (*policy.Rule)(nil)
	for m := range x.Left() {
		i, known := of[m.Policy]
		if !known {
			i = len(left)
			of[m.Policy] = i
			left = append(left, leftOut{id: m.Policy, path: m.Rule.Path, names: m.Pattern.String(), why: fmt.Sprintf(why, policy.MaxOpenings)})
		}
		if m.Rule != last {
			left[i].rules++
		}
		last = m.Rule
	}
	return left
}

// problem describes the effect of the bound, on one of the pods unless pod is "".
func (l *leftOut) problem(pod string) policy.Problem {
	rules := "this rule opens"
	if l.rules > 1 {
		rules = fmt.Sprintf("this rule and %d more of the policy open", l.rules-1)
	}
	switch {
	case pod == "":
		rules += " nothing for names of " + l.names + ": "
	case l.names != "":
		rules += " nothing for names of " + l.names + " and pod " + pod + ": the policies that select it "
	default:
		rules += " nothing for pod " + pod + ": the policies that select it "
	}
	return policy.Problem{Object: "policy " + l.id, Reason: policy.ReasonPartiallyInvalid, Path: l.path, Message: rules + l.why}
}
