package audit

import (
	"maps"
	"slices"
	"sync/atomic"
)

// Filter says which lines are written. The zero value is all of them.
type Filter struct {
	// Verdicts are the verdicts whose lines are written, of DNS and of flows; none is
	// every verdict.
	Verdicts []string
	// Namespaces are the namespaces whose pods' lines are written; none is every
	// namespace, and the lines of nodes.
	Namespaces []string
	// Sample writes one of so many decisions whose verdict is allowed; 0 and 1 write
	// all. A line that says that Audit policies would do otherwise is always written.
	Sample int
}

// Verdicts returns the words of all verdicts, DNS first. Denied is of both.
func Verdicts() []string {
	return slices.Concat(verdictWords[Allowed:NameDenied], verdictWords[Renewed:], flowWords[:])
}

// Filter applies f to the lines from now on, in place of the previous filter. An unknown
// word means no verdict.
func (l *Log) Filter(f Filter) {
	next := compileFilter(f)
	l.live.mu.Lock()
	defer l.live.mu.Unlock()
	if next.same(l.filter.Load()) {
		return
	}
	l.filter.Store(next)
	l.live.restart(l.now()) // read after the store: the previous filter omits no later line
}

// trait is the part of a record that a compiledFilter reads.
type trait struct {
	namespace      string
	verdict, would Verdict
}

func traitOf(r *Record) trait { return trait{r.Pod.Namespace, r.Verdict, r.Would} }

// compiledFilter is a Filter ready for use.
type compiledFilter struct {
	decisions  [Renewed + 1]bool
	flows      [WouldAllow + 1]bool
	namespaces map[string]bool // nil for all
	sample     uint64
	allowed    atomic.Uint64 // decisions that were up for being sampled
}

// compileFilter returns nil for a filter that keeps everything.
func compileFilter(f Filter) *compiledFilter {
	if len(f.Verdicts) == 0 && len(f.Namespaces) == 0 && f.Sample <= 1 {
		return nil
	}
	s := &compiledFilter{sample: uint64(max(f.Sample, 1))}
	for v := range s.decisions {
		s.decisions[v] = len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, Verdict(v).String())
	}
	for v := range s.flows {
		s.flows[v] = len(f.Verdicts) == 0 || slices.Contains(f.Verdicts, FlowVerdict(v).String())
	}
	for _, n := range f.Namespaces {
		if s.namespaces == nil {
			s.namespaces = map[string]bool{}
		}
		s.namespaces[n] = true
	}
	return s
}

// same tells whether two filters keep the same lines, nil being all.
func (s *compiledFilter) same(other *compiledFilter) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.decisions == other.decisions && s.flows == other.flows && s.sample == other.sample &&
		maps.Equal(s.namespaces, other.namespaces)
}

// keepsDecisions tells whether the filter keeps every decision about the pods of a namespace;
// with "" about all pods and the node.
func (s *compiledFilter) keepsDecisions(namespace string) bool {
	if s == nil {
		return true
	}
	return s.sample == 1 && (s.namespaces == nil || s.namespaces[namespace]) && !slices.Contains(s.decisions[Allowed:], false)
}

func (s *compiledFilter) keeps(t *trait) bool {
	if !s.decisions[t.verdict] || s.namespaces != nil && !s.namespaces[t.namespace] {
		return false
	}
	if s.sample == 1 || t.verdict != Allowed || t.would != None && t.would != Allowed {
		return true
	}
	return s.allowed.Add(1)%s.sample == 1
}

func (s *compiledFilter) keepsFlow(f *Flow) bool {
	return s.flows[f.Verdict] && (s.namespaces == nil || s.namespaces[f.Pod.Namespace])
}
