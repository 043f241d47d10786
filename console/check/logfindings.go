package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// minSpan is how long the agents' logs have to be complete, and to go on after the last change
// of a policy of the cluster, before a name counts as unresolved: pods resolve a name again after its
// TTL, which is minutes for most names.
const minSpan = 10 * time.Minute

// judges tells whether the log is long enough to call the match of a policy unresolved. A log for
// files is, as it was chosen for them.
func (l *Log) judges(a *acceptance) bool {
	if a.of.place.changed.IsZero() {
		return true
	}
	begin, end := l.first, l.last
	if l.ofAgents() {
		begin, end = l.from, l.until
	}
	if changed := a.of.place.changed; changed.After(begin) {
		begin = changed
	}
	return end.Sub(begin) >= minSpan
}

// ofAgents tells whether the lines are of agents that know for how long they are complete.
func (l *Log) ofAgents() bool { return !l.until.IsZero() }

// complete is for how long the logs of all agents are complete.
func (l *Log) complete() time.Duration { return l.until.Sub(l.from) }

// findings returns the names that nothing resolved and the shared addresses, and the policies of
// the cluster about which the log tells too little.
func (l *Log) findings() (findings []Finding, unchecked []Unchecked) {
	if l.full {
		findings = append(findings, Finding{Severity: Warning, Reason: LogTooLong, Message: fmt.Sprintf(
			"the log has more than %d pairs of a name and an address, and names on shared addresses were sought among the first; give the log of a shorter time", maxSightings)})
	}
	silent := map[string]bool{}
	var unanswered, young, short []string // policies
	shared := l.shared()
	for _, a := range l.accepted {
		switch {
		case l.partial && !a.resolved: // the caller says so
		case !l.answered[a.scope] && !a.of.place.changed.IsZero():
			unanswered = append(unanswered, a.name())
			continue
		case !a.resolved && l.ofAgents() && l.complete() < minSpan:
			short = append(short, a.name())
		case !a.resolved && !l.judges(a):
			young = append(young, a.name())
		case !l.answered[a.scope]:
			if !silent[a.name()] {
				silent[a.name()] = true
				findings = append(findings, a.finding(LogSilent, fmt.Sprintf("the log (%s) has no answered query of a %s, and has no information about the names of this policy; give a log with lines of the verdict allowed, of a time when its pods ran", l.span(), a.clients())))
			}
			continue
		case a.queries == 0:
			findings = append(findings, a.finding(Unresolved, fmt.Sprintf("%s in %s; compare the spelling with the names that namegate suggest finds in the log, and remove it if nothing needs it", a.unqueried(), l.extent())))
		case !a.resolved:
			findings = append(findings, a.finding(Unresolved, fmt.Sprintf("was queried %s, and no answer had an address (%s) in %s; correct the name, or remove it", times(a.queries), a.rcode, l.extent())))
		}
		if o := shared[a]; o != nil && !a.serverName {
			findings = append(findings, a.finding(SharedAddress, o.message(a)))
		}
	}
	leave := func(names []string, what, format string, args ...any) {
		if len(names) > 0 {
			unchecked = append(unchecked, Unchecked{"names of " + some(names, false) + what, fmt.Sprintf(format, args...) + ", or give an audit log of a longer time with --log"})
		}
	}
	leave(unanswered, " (Unresolved, SharedAddress)", "the log (%s) has no answered query of their pods or nodes; check again while they run", l.span())
	leave(short, " that no query resolved (Unresolved)", "the logs of all agents are complete for the last %s only, and %s are necessary: the agent%s started then, lost lines, "+
		"got other options of audit, or has no room for older lines; check again later", lasts(l.complete()), lasts(minSpan), l.shortest)
	leave(young, " that no query resolved (Unresolved)", "the log (%s) has less than %.0f minutes since they changed; check again later", l.span(), minSpan.Minutes())
	return findings, unchecked
}

// some returns the first of some names; more tells that there are others.
func some(names []string, more bool) string {
	const most = 4
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	switch rest := len(names) - most; {
	case rest > 0 && more:
		return fmt.Sprintf("%s and over %d more", strings.Join(names[:most], ", "), rest)
	case more:
		return strings.Join(names, ", ") + " and more"
	}
	return console.Listed(names, most)
}

// clients names the pods or nodes of the match's policy.
func (a *acceptance) clients() string {
	switch a.scope {
	case allPods:
		return "pod"
	case allNodes:
		return "node"
	}
	return "pod of namespace " + a.scope
}

// unqueried says that no client queried a name of the match.
func (a *acceptance) unqueried() string {
	if _, exact := a.pattern.Exact(); exact {
		return fmt.Sprintf("no %s queried it", a.clients())
	}
	return fmt.Sprintf("no %s queried a name that it matches", a.clients())
}

// extent names the log in which a name is unresolved.
func (l *Log) extent() string {
	if !l.ofAgents() {
		return "the log (" + l.span() + ")"
	}
	return "the last " + lasts(l.complete()) + ", the time for which the logs of all agents are complete"
}

// lasts writes a duration in hours and minutes, or below a minute in seconds.
func lasts(d time.Duration) string {
	if d < time.Minute {
		return d.Truncate(time.Second).String()
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}

// span says how much of a log was read.
func (l *Log) span() string {
	if l.lines == 0 {
		return "without lines"
	}
	return fmt.Sprintf("%d lines from %s to %s", l.lines, l.first.UTC().Format(time.RFC3339), l.last.UTC().Format(time.RFC3339))
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// overlap is what a match shares with names that its policies do not accept.
type overlap struct {
	addresses int
	first     netip.Addr
	name      fqdn.Name // of the match, at the first address
	names     map[fqdn.Name]bool
	more      bool
}

// shared returns the matches whose names have addresses that answered other names too, which no
// policy of its scope accepts.
func (l *Log) shared() map[*acceptance]*overlap {
	overlaps := map[*acceptance]*overlap{}
	for _, address := range slices.SortedFunc(maps.Keys(l.addresses), netip.Addr.Compare) {
		s := l.addresses[address]
		if len(s.accepted) == 0 || len(s.accepted)+len(s.others) == 1 {
			continue
		}
		slices.Sort(s.accepted)
		for _, name := range s.accepted {
			for _, a := range l.byName.Match(name) {
				others := l.unaccepted(a, s)
				if len(others) == 0 {
					continue
				}
				o := overlaps[a]
				if o == nil {
					o = &overlap{first: address, name: name, names: map[fqdn.Name]bool{}}
					overlaps[a] = o
				}
				o.add(others, s.more)
			}
		}
	}
	return overlaps
}

// maxNamesKept bounds the names of a finding that are counted.
const maxNamesKept = 1000

func (o *overlap) add(others []fqdn.Name, more bool) {
	o.addresses++
	o.more = o.more || more
	for _, name := range others {
		if len(o.names) == maxNamesKept {
			o.more = true
			return
		}
		o.names[name] = true
	}
}

func (o *overlap) message(a *acceptance) string {
	var names []string
	for name := range o.names {
		names = append(names, name.String())
	}
	by := "no cluster policy accepts"
	if a.scope != allPods && a.scope != allNodes {
		by = "no policy of namespace " + a.scope + " allows"
	}
	ports := "on every port"
	if a.ports != policy.AnyPort {
		ports = "on " + string(a.ports)
	}
	remedy := ""
	if a.of.own != nil || a.of.ours != nil {
		remedy = ", or write serverName: Require in the rule if the connections begin with TLS"
	}
	where := fmt.Sprintf("address %s of %s", o.first, o.name)
	if o.addresses > 1 {
		where = fmt.Sprintf("%d addresses, such as %s of %s,", o.addresses, o.first, o.name)
	}
	return fmt.Sprintf("%s also answered for %s, which %s: an open address is open for each of its names, %s; if that is too much, use a name with addresses of its own%s", where, some(names, o.more), by, ports, remedy)
}

// unaccepted returns the names of an address that no policy of a match's scope accepts. Cluster
// policies accept names for every namespace.
func (l *Log) unaccepted(a *acceptance, s *sighting) []fqdn.Name {
	others := slices.Clone(s.others)
	for _, name := range s.accepted {
		if !slices.ContainsFunc(l.byName.Match(name), func(b *acceptance) bool {
			return b.scope == a.scope || b.scope == allPods && a.scope != allNodes
		}) {
			others = append(others, name)
		}
	}
	return others
}
