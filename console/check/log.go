package check

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Log compares an audit log with the accepted names of manifests: which of them were resolved,
// and on which addresses. Its memory is bounded by the manifests and by maxSightings. It is for
// one goroutine.
type Log struct {
	accepted []*acceptance
	byName   *fqdn.Matcher[*acceptance]
	// answered tells of each scope of a match whether the log has answers for its pods or nodes.
	answered    map[string]bool
	addresses   map[netip.Addr]*sighting
	sightings   int // pairs of an address and a name
	full        bool
	lines       uint64
	first, last time.Time
	// The logs of all agents are complete from then until then; zero for a log in files. shortest
	// says of which node the log begins last.
	from, until time.Time
	shortest    string
	partial     bool // lines of some pods are missing
}

// The scopes of cluster policies. A scope of other policies is their namespace.
const (
	allPods  = "every namespace"
	allNodes = "the nodes"
)

// maxSightings bounds the pairs of an address and a name that a Log keeps, about 30 MiB.
const maxSightings = 1 << 18

// maxNamesAt bounds the names of one address, of each kind: an address of a content network has
// had thousands.
const maxNamesAt = 16

// acceptance is a match that accepts, and its queries.
type acceptance struct {
	written
	of       *Policy
	scope    string
	queries  uint64
	resolved bool
	rcode    string // of the last answer
}

// finding returns a finding about the match.
func (a *acceptance) finding(reason, message string) Finding {
	return a.of.finding(Warning, reason, a.path, message)
}

// name names the policy of the match in a sentence.
func (a *acceptance) name() string { return strings.TrimPrefix(a.of.Object, "policy ") }

// sighting is the names of one address in answers.
type sighting struct {
	accepted, others []fqdn.Name // that some match covers, and that none covers
	more             bool        // there were further others
}

// NewLog returns a log without lines, for the manifests as they are.
func NewLog(m *Manifests) *Log {
	l := &Log{answered: map[string]bool{}, addresses: map[netip.Addr]*sighting{}}
	for _, p := range m.Policies {
		scope := p.namespace
		switch {
		case p.Nodes != nil:
			scope = allNodes
		case p.ofCluster():
			scope = allPods
		}
		for _, w := range p.matches {
			if w.action == v1alpha1.ActionAccept && w.ports != "" {
				l.answered[scope] = false
				l.accepted = append(l.accepted, &acceptance{written: w, of: p, scope: scope})
			}
		}
	}
	l.byName = fqdn.NewMatcher(slices.Clone(l.accepted), func(a *acceptance) *fqdn.Pattern { return &a.pattern }, nil)
	return l
}

// holds tells whether the pod or node of a line is in the scope of the match.
func (a *acceptance) holds(line *audit.Line) bool {
	if line.Host != nil {
		return a.scope == allNodes
	}
	return a.scope == allPods || a.scope == line.Pod.Namespace
}

// Partial says that lines of some pods are missing, so that no name counts as unresolved.
func (l *Log) Partial() { l.partial = true }

// Complete says that the lines of a node's agent, "" for an unknown node, are complete in a time.
// Names are unresolved in the time that all agents have in common.
func (l *Log) Complete(node string, from, until time.Time) {
	if from.After(l.from) {
		l.from, l.shortest = from, ""
		if node != "" {
			l.shortest = " of node " + node
		}
	}
	if l.until.IsZero() || until.Before(l.until) {
		l.until = until
	}
}

// Add adds a line.
func (l *Log) Add(line audit.Line) {
	l.lines++
	if l.first.IsZero() || line.Time.Before(l.first) {
		l.first = line.Time
	}
	for _, at := range []time.Time{line.Time, line.Last} {
		if at.After(l.last) {
			l.last = at
		}
	}
	if line.Kind == audit.KindFlow {
		for _, n := range line.Names {
			name, err := fqdn.ParseName(n.Name)
			if err != nil || line.Destination == nil {
				continue
			}
			if n.Pod == "" {
				l.query(&line, name, true)
			}
			l.see(line.Destination.Address, name)
		}
		return
	}
	if line.Question == nil {
		return
	}
	name, err := fqdn.ParseName(line.Question.Name)
	if err != nil {
		return
	}
	resolved := len(line.Answers) > 0
	l.query(&line, name, resolved)
	if via, err := fqdn.ParseName(line.Via); line.Via != "" && err == nil {
		l.query(&line, via, resolved)
		return // the match of via accepts the question's name too
	}
	for _, a := range line.Answers {
		if a.Blocked == "" {
			l.see(a.Address, name)
		}
	}
}

// query counts a query of a line for a name.
func (l *Log) query(line *audit.Line, name fqdn.Name, resolved bool) {
	if resolved || line.Verdict == audit.Allowed.String() || line.Would == audit.Allowed.String() {
		scopes := []string{line.Pod.Namespace, allPods}
		if line.Host != nil {
			scopes = []string{allNodes}
		}
		for _, scope := range scopes {
			if _, asked := l.answered[scope]; asked {
				l.answered[scope] = true
			}
		}
	}
	for _, a := range l.byName.Match(name) {
		if a.holds(line) {
			a.queries++
			a.resolved = a.resolved || resolved
			a.rcode = line.Rcode
		}
	}
}

// see keeps that an address was an answer for a name.
func (l *Log) see(text string, name fqdn.Name) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	address = policy.CleanAddr(address)
	s := l.addresses[address]
	if s == nil {
		if l.full = l.full || l.sightings >= maxSightings; l.full {
			return
		}
		s = &sighting{}
		l.addresses[address] = s
	}
	of := &s.others
	if len(l.byName.Match(name)) > 0 {
		of = &s.accepted
	}
	switch {
	case slices.Contains(*of, name):
	case len(*of) == maxNamesAt:
		s.more = true
	case l.sightings >= maxSightings:
		l.full = true
	default:
		l.sightings++
		*of = append(*of, fqdn.Name(strings.Clone(string(name))))
	}
}
