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
	// MaxViewPortSets bounds the distinct port sets of the enforcing policies, and their rules with ServerName:
	// the kernel has 65,472 sets in a network namespace, and each of these takes one of
	// both families.
	MaxViewPortSets = 256
)

// leftOut is the rules of one policy that a bound leaves out, wholly or in part.
type leftOut struct {
	kind, id    string // of the policy, as problems name it
	first, last string // the paths of rules
	rules       int
	names       string // "" for all, else the pattern of the first match that is left out
	why         string // the bound, and what to do
}

// add counts a rule once, whose matches or peers come one after the other.
func (l *leftOut) add(path string) {
	if l.rules == 0 {
		l.first = path
	}
	if l.last != path {
		l.last = path
		l.rules++
	}
}

// The kinds of policies in problems.
const (
	kindPolicy        = "policy "
	kindNetworkPolicy = "networkpolicy "
)

const (
	tooManyMatches  = "have more than %d matches, or %d labels in patterns, together; write fewer, or a wildcard for several"
	tooManyOpenings = "open them on more than %d different sets of ports, or with as many different ttl, together; give rules the same ports and ttl, or a range for several"
	tooManyRules    = "cluster policies accept them by more than %d rules with the same subject; write fewer rules, or a range of ports for several"
	tooManyPortSets = "open more than %d different sets of ports together; give rules the same ports, or a range for several; each rule with serverName: Require counts as one"
)

// bounds is the room that policies have together.
type bounds struct {
	room  cost // its sets are of known
	known map[entrySet]struct{}
	left  []leftOut
}

// withinBounds returns policies, which are sorted, without the rules beyond a bound, and
// these rules. Enforcing policies come first, so that audited ones take none of their
// room; else the order of the names counts.
func withinBounds(policies []*parsed) ([]*parsed, []leftOut) {
	b := bounds{room: cost{matches: MaxViewMatches, labels: MaxViewLabels, sets: MaxViewPortSets}, known: map[entrySet]struct{}{}}
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
	matches := &leftOut{kind: kindPolicy, id: p.ID, why: fmt.Sprintf(tooManyMatches, MaxViewMatches, MaxViewLabels)}
	ports := &leftOut{kind: kindPolicy, id: p.ID, why: fmt.Sprintf(tooManyPortSets, MaxViewPortSets)}
	for _, rule := range p.Rules {
		needs := cost{matches: len(rule.Matches), labels: wildLabels(rule.Matches)}
		set := entrySet{rule.Ports, rule.ID}
		if _, known := b.known[set]; !p.Audit && !known {
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
			over.add(rule.Path)
			continue
		}
		b.room = b.room.minus(needs)
		if needs.sets > 0 {
			b.known[set] = struct{}{}
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
	of := map[string]int{}
	for m := range x.Left() {
		i, known := of[m.Policy]
		if !known {
			i = len(left)
			of[m.Policy] = i
			left = append(left, leftOut{kind: kindPolicy, id: m.Policy, names: m.Pattern.String(), why: fmt.Sprintf(why, policy.MaxOpenings)})
		}
		left[i].add(m.Rule.Path)
	}
	return left
}

// problem describes the effect of the bound, on one of the pods unless pod is "".
func (l *leftOut) problem(pod string) policy.Problem {
	effect := rulesText(l.rules, "policy", "opens nothing for ", "open nothing for ")
	switch {
	case pod == "":
		effect += "names of " + l.names + ": "
	case l.kind == kindNetworkPolicy:
		effect = rulesText(l.rules, "NetworkPolicy", "opens not all that it says for pod ", "open not all that they say for pod ") + pod + ": "
	case l.names != "":
		effect += "names of " + l.names + " and pod " + pod + ": the policies that select it "
	default:
		effect += "pod " + pod + ": the policies that select it "
	}
	return policy.Problem{Object: l.kind + l.id, Reason: policy.ReasonPartiallyInvalid, Path: l.first, Message: effect + l.why}
}

// rulesText says what one rule of a policy does, or several do.
func rulesText(n int, of, one, several string) string {
	if n <= 1 {
		return "this rule " + one
	}
	return fmt.Sprintf("this rule and %d more of the %s %s", n-1, of, several)
}

// reportLeft reports the rules beyond a bound, each policy for the first of the pods
// only: thousands may have the same.
func (s *draft) reportLeft(p *policy.Pod, left []leftOut, reported map[[2]string]bool) {
	for i := range left {
		l := &left[i]
		if key := [2]string{l.kind + l.id, l.why}; !reported[key] {
			reported[key] = true
			s.Problems = append(s.Problems, l.problem(p.String()))
		}
	}
}
