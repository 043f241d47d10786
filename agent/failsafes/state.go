package failsafes

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/policy/fqdn"
)

// state is everything that a Keeper knows. It has no clock and asks nothing but its sources.
type state struct {
	in              Inputs
	sources         []*source
	names           names
	retained        retained
	earlier         map[string][]netip.Addr // the last of names without a target, and those of an earlier agent
	resumed         bool                    // retained has the entries of these
	hasCluster      bool
	hasCorefile     bool
	connectionsOpen func() connections
}

// read reads sources, and tells whether the failsafes may have changed.
func (s *state) read(sources []*source) (changed bool) {
	for _, source := range sources {
		changed = source.refresh(&s.in) || changed
	}
	return changed
}

// ready tells whether every source was read, or failed, once.
func (s *state) ready() bool {
	for _, source := range s.sources {
		if !source.known && source.err == nil {
			return false
		}
	}
	return s.hasCluster && s.hasCorefile && s.names.complete()
}

// known tells whether every source was read once.
func (s *state) known() bool {
	return !slices.ContainsFunc(s.sources, func(source *source) bool { return !source.known })
}

// needs computes the needs of the inputs, and takes over their names.
func (s *state) needs() needs {
	n := needsOf(&s.in)
	s.names.sync(n.names, s.earlier)
	return n
}

// list returns the failsafes at a time.
func (s *state) list(now time.Time) *failsafe.List {
	n := s.needs()
	for _, source := range s.sources {
		if p, ok := source.problem(&s.in); ok {
			n.problems = append(n.problems, p)
		}
	}
	for i := range n.names {
		n.kept = append(n.kept, s.names.entries(&n.names[i])...)
		if p, ok := s.names.problem(&n.names[i]); ok {
			n.problems = append(n.problems, p)
		}
	}
	if !s.resumed {
		s.resumed = true
		s.retained.listed = former(n.names, s.earlier)
	}
	open := s.connectionsOpen()
	kept := s.retained.update(now, sorted(n.kept), open.inUse)
	l := &failsafe.List{Entries: sorted(append(kept, n.current...)), Names: n.names}
	for _, p := range n.problems {
		if !p.settled(s.in.Corefile.Failsafes) {
			l.Findings = append(l.Findings, p.Finding)
		}
	}
	slices.SortFunc(l.Names, compareTargets)
	l.Names = slices.Compact(l.Names)
	l.Queries = queries(l.Names, s.in.Resolvers.Config)
	slices.SortFunc(l.Findings, func(a, b failsafe.Finding) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Message, b.Message))
	})
	l.Findings = slices.Compact(l.Findings)
	return l
}

// former returns the entries that an earlier agent listed for names: those that this agent does not list
// stay, as if it had listed them itself.
func former(targets []failsafe.Target, earlier map[string][]netip.Addr) (out []failsafe.Entry) {
	for i := range targets {
		out = append(out, entriesAt(&targets[i], bounded(earlier[targets[i].Host]))...)
	}
	return sorted(out)
}

// queries returns targets by the names that programs of the host query for them. A name that is none of DNS
// is left out: its lookup is a finding.
func queries(targets []failsafe.Target, c hostfiles.ResolvConf) map[fqdn.Name][]failsafe.Target {
	out := map[fqdn.Name][]failsafe.Target{}
	for _, t := range targets {
		for _, candidate := range candidates(t.Host, c) {
			if n, err := fqdn.ParseName(candidate); err == nil {
				out[n] = append(out[n], t)
			}
		}
	}
	return out
}

func sorted(entries []failsafe.Entry) []failsafe.Entry {
	slices.SortFunc(entries, failsafe.Compare)
	return slices.Compact(entries)
}

func compareTargets(a, b failsafe.Target) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Ports.Protocol, b.Ports.Protocol), cmp.Compare(a.Ports.First, b.Ports.First),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Source, b.Source))
}

// same tells whether two lists say the same.
func same(a, b *failsafe.List) bool {
	return a != nil && b != nil && slices.Equal(a.Entries, b.Entries) && slices.Equal(a.Names, b.Names) && maps.EqualFunc(a.Queries, b.Queries, slices.Equal) && slices.Equal(a.Findings, b.Findings)
}
