package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// Tier is the place of a rule in the order of evaluation. The zero value is the tier of
// the namespaces' own policies.
type Tier int8

// The tiers, in their order.
const (
	Admin     Tier = iota - 1 // before the namespaces' policies
	Namespace                 // a union behind Rules.NamespaceDeny: every rule accepts, and no match is denied
	Baseline                  // a default where no namespaced egress policy selects
)

// String returns the word of the API.
func (t Tier) String() string { return [...]string{"Admin", "Namespace", "Baseline"}[t+1] }

// Action is the effect of a rule on the traffic that it matches.
type Action uint8

// The actions.
const (
	Accept Action = iota
	Deny
	Pass // on to the next tier
)

// String returns the word of the API.
func (a Action) String() string { return [...]string{"Accept", "Deny", "Pass"}[a] }

// Rule is one rule of one policy in a view. It is immutable, and views of pods that the
// same policies select share it. A rule of an object with several kinds of peers is one
// Rule for each kind, one after the other.
type Rule struct {
	Tier     Tier
	Priority int32 // of the policy in its tier, 0 in the Namespace tier
	// Standard: of a ClusterNetworkPolicy. Connections that were admitted before such a rule
	// denied them stay.
	Standard bool
	// Ingress: of connections to the pod. Peer is the source then.
	Ingress bool
	Action  Action
	OfNode
	// Peer is the destination of the rule. With PeerNames it is the addresses of the
	// names of Matches, as dialled; else it is the actual destination, behind a Service
	// the pod.
	Peer    Peer
	Matches []*Match
	// Ports are the dialled or actual ports, as for Peer. With PeerPorts it is AnyPort:
	// the set has them.
	Ports PortSet
	// PortNames are further ports of a rule for ingress: those of the pod with these names. The compiler
	// makes Ports of them, for each pod.
	PortNames []NamedPort
	TTL       TTL // of PeerNames
	// ServerName: a rule with names that accepts opens nothing by itself. A TCP connection that it matches is led to the
	// agent, and must begin with a TLS server name that is one of the names for which the pod holds a grant of
	// the address by such a rule.
	ServerName bool
	Policy     string // "namespace/name"; of a cluster policy "name"
	Path       string // "spec.egress[0]"
	Name       string // of the rule, "" for none
	// ID is of the grants of a rule with names in the Admin or the Baseline tier, and of one with ServerName in each tier.
	ID    RuleID
	Audit bool // from an Audit policy: counts for the log alone
	// Broken: a part of the rule cannot be read. As Accept it matches nothing, as Deny or
	// Pass it denies everything.
	Broken bool
	// Closed: the rule denies or passes by names, and the pod has no room for their addresses. It
	// denies every destination on its ports.
	Closed bool
	Denial
}

// OfNode is what a rule for the node has.
type OfNode struct {
	// Traffic is what the rule is about.
	Traffic Traffic
	// Interfaces are the names of the interfaces by which its packets
	// arrive, or leave: of a name that ends with "*" those that begin so. nil are the Interfaces of the Node.
	Interfaces []string
}

// Denial is how what a rule with Deny matches fails.
type Denial struct {
	// Denied is of a connection, in the Admin or the Baseline tier.
	Denied Denied
	// DNSDenied is the reply to a question that a Deny rule for all ports covers.
	DNSDenied Unmatched
}

// refuses tells whether the rule keeps questions for its names from being asked.
func (r *Rule) refuses() bool {
	return r.Action == Deny && r.Ports == AnyPort && r.DNSDenied != Resolve
}

// RuleID tells the grants of ordered rules apart: a letter of the action, and hexadecimal
// digits, which end with the TTL's Reuse for a rule that denies or passes. "" is every rule
// of the Namespace tier without ServerName.
type RuleID string

// Lasting tells whether grants of the rule must not end before what they shadow: it denies
// or passes.
func (id RuleID) Lasting() bool {
	return id != "" && (id[0] == idLetters[Deny] || id[0] == idLetters[Pass])
}

// ServerName tells whether the rule requires the server name.
func (id RuleID) ServerName() bool { return id != "" && id[0] == serverNameLetter }

// Denies tells whether the rule denies.
func (id RuleID) Denies() bool { return id != "" && id[0] == idLetters[Deny] }

// Reuse is how long an address counts for a lasting rule after an answer, 0 for
// other rules.
func (id RuleID) Reuse() time.Duration {
	if len(id) <= idDigits {
		return 0
	}
	seconds, _ := strconv.ParseUint(string(id[1+idDigits:]), 16, 32)
	return time.Duration(seconds) * time.Second
}

const (
	idLetters = "adp" // the first letters of IDs, by action
	idDigits  = 16    // of the digest

	serverNameLetter = 's' // the first letter of IDs of rules with ServerName
)

// NewID returns the ID of a rule of the Admin or the Baseline tier, or with ServerName: equal for the same rule
// of the same policy, whatever its names, priority and tier are. It has the first
// hexadecimal digits of SHA-256 over the policy and the rule's place, action and ports.
func (r *Rule) NewID() RuleID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%t %q %q %d %q", r.Standard, r.Policy, r.Path, r.Action, r.Ports))
	id := RuleID(idLetters[r.Action:r.Action+1] + hex.EncodeToString(sum[:])[:idDigits])
	if r.ServerName {
		return RuleID(serverNameLetter) + id[1:]
	}
	if !id.Lasting() {
		return id
	}
	return id + RuleID(strconv.FormatUint(uint64(r.TTL.Reuse/time.Second), 16))
}

// Break returns the rule as a broken one. It has no matches, and the destination and ports
// that agree with its effect: none for Accept, every one else.
func (r *Rule) Break() *Rule {
	broken := *r
	broken.Broken, broken.Matches, broken.ID, broken.PortNames, broken.ServerName = true, nil, "", nil, false
	if broken.Peer, broken.Ports = (Peer{Kind: PeerAnywhere}), AnyPort; r.Action == Accept {
		broken.Peer, broken.Ports = Peer{Kind: PeerNames}, ""
	}
	return &broken
}

// Match is one match of a rule. It is shared and must not be changed.
type Match struct {
	*Rule
	Path    string // "spec.egress[0].matches[1]"
	Pattern fqdn.Pattern
	index   int32     // in its policy
	by      [1]string // By, ready for an Opening of this match alone
}

// NewMatch returns the match of that index in the policy of a rule.
func NewMatch(r *Rule, path string, p fqdn.Pattern, index int) *Match {
	return &Match{Rule: r, Path: path, Pattern: p, index: int32(index), by: [1]string{r.Policy + " " + p.String()}}
}

// Accepts tells whether the match opens addresses.
func (m *Match) Accepts() bool { return m.Action == Accept }

// Compare orders by policy, then by index.
func (m *Match) Compare(o *Match) int {
	return cmp.Or(strings.Compare(m.Policy, o.Policy), cmp.Compare(m.index, o.index))
}

// By returns "namespace/name pattern", the words of the log for the match.
func (m *Match) By() string { return m.bys()[0] }

// bys returns By in a slice without room, which may be shared.
func (m *Match) bys() []string {
	if m.by[0] == "" { // not made by NewMatch
		return []string{m.Policy + " " + m.Pattern.String()}
	}
	return m.by[:1:1]
}

// Index finds rules by names. Views share it. It is immutable.
type Index struct {
	matcher  *fqdn.Matcher[*Match] // nil: no name matches
	portSets []PortSet             // of the Namespace tier
	// openedNames are the exact names of enforcing rules, but for deniedNames, which rules only
	// deny, and for names that rules only refuse. Both are sorted.
	openedNames, deniedNames []fqdn.Name
}

// NewMatcher returns the matcher of matches, in their order. It keeps the slice.
func NewMatcher(matches []*Match) *fqdn.Matcher[*Match] {
	return fqdn.NewMatcher(matches, func(m *Match) *fqdn.Pattern { return &m.Pattern }, nil)
}

// match returns the matches that cover a name and count, and whether others do not.
func (x *Index) match(n fqdn.Name) (matches []*Match, over bool) {
	if x == nil {
		return nil, false
	}
	return x.matcher.Find(n)
}

// Left yields the matches of rules that accept which are left out beyond MaxOpenings, as
// fqdn.Matcher.Left has it.
func (x *Index) Left() iter.Seq[*Match] { return x.matcher.Left() }

// MaxOpenings bounds the openings of one name by rules that accept, of each pod: the different ports
// and TTL settings of the Namespace tier, and the rules of the tiers with an order, in the order in which rules are evaluated. Those of
// Audit policies are counted apart. Rules that deny or pass count always.
const MaxOpenings = fqdn.MaxClasses

// openings returns the function that numbers the openings of matches of rules that accept, odd
// for Audit policies.
func openings() func(*Match) int {
	type opening struct {
		rule  *Rule // nil in the Namespace tier
		ports PortSet
		ttl   TTL
	}
	known := map[opening]int{}
	var last opening
	var rule *Rule
	n, class := -1, -1 // of last, of rule
	number := func(m *Match) int {
		if !m.Accepts() {
			return -1
		}
		o := opening{ports: m.Ports, ttl: m.TTL}
		if m.Rule.Tier != Namespace || m.ServerName {
			o.rule = m.Rule
		}
		if n < 0 || o != last { // most follow one like them
			var there bool
			if n, there = known[o]; !there {
				n = len(known)
				known[o] = n
			}
			last = o
		}
		if m.Audit {
			return 2*n + 1
		}
		return 2 * n
	}
	return func(m *Match) int {
		if m.Rule != rule {
			rule, class = m.Rule, number(m)
		}
		return class
	}
}

// NewIndex returns the index of rules, which have that many matches.
func NewIndex(rules []*Rule, matches int) *Index {
	all, ports := make([]*Match, 0, matches), map[PortSet]struct{}{}
	for _, r := range rules {
		all = append(all, r.Matches...)
		if !r.Audit && r.Peer.Kind == PeerNames && r.Tier == Namespace && !r.ServerName {
			ports[r.Ports] = struct{}{}
		}
	}
	if !slices.IsSortedFunc(all, inOrder) {
		slices.SortFunc(all, inOrder)
	}
	matcher := fqdn.NewMatcher(all, func(m *Match) *fqdn.Pattern { return &m.Pattern }, openings())
	x := &Index{matcher: matcher, portSets: slices.Sorted(maps.Keys(ports))}
	for name, own := range x.matcher.Exact() {
		switch enforcing := func(m *Match) bool { return !m.Audit }; {
		case slices.ContainsFunc(own, func(m *Match) bool { return enforcing(m) && m.Rule.Action != Deny }):
			x.openedNames = append(x.openedNames, name)
		case slices.ContainsFunc(own, func(m *Match) bool { return enforcing(m) && !m.Rule.refuses() }):
			x.deniedNames = append(x.deniedNames, name)
		}
	}
	slices.Sort(x.openedNames)
	slices.Sort(x.deniedNames)
	return x
}
