package kube

import (
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// State is what the API server says at one moment. It is the receiver's to keep and
// not to change: later states share parts of it.
type State struct {
	Input policy.Input
	// Problems are what of the objects could not be understood, sorted by object.
	Problems []policy.Problem
	Cluster  policy.Cluster
}

// part is what a State takes from one shelf, and the version that it was made of.
type part struct {
	version  uint64
	problems []policy.Problem
}

// assembly is the State that is being put together, and its parts.
type assembly struct {
	state                                       State
	pods, policies, namespaces, services, nodes part
	byRef                                       map[policy.ServiceRef]*serviceEntry
	slices                                      map[policy.ServiceRef]*slicesPart
}

// slicesPart is a part with the entries that it was made of.
type slicesPart struct {
	part
	entries []*sliceEntry
}

// bring brings the part up to date by make if the shelf has changed, and tells so.
func bring[T any](p *part, from *shelf[T], make func([]*T) []policy.Problem) bool {
	entries, version, news := from.since(p.version)
	if news {
		p.version, p.problems = version, make(entries)
	}
	return news
}

// assemble returns the State of now and whether it is another than the last. What
// did not change is shared with it.
func (s *Source) assemble() (State, bool) {
	a := &s.assembly
	news := bring(&a.policies, s.policies, func(entries []*policyEntry) (problems []policy.Problem) {
		a.state.Input.Policies, problems = listPolicies(entries)
		return problems
	})
	news = bring(&a.pods, s.pods, func(entries []*podEntry) (problems []policy.Problem) {
		a.state.Input.Pods, problems = settlePods(entries)
		return problems
	}) || news
	news = bring(&a.namespaces, s.namespaces, func(entries []*spaceEntry) []policy.Problem {
		a.state.Input.Namespaces = listNamespaces(entries)
		return nil
	}) || news
	news = bring(&a.nodes, s.nodes, func(entries []*nodeEntry) []policy.Problem {
		return listNodes(entries, s.node, &a.state.Cluster)
	}) || news
	moved := bring(&a.services, s.services, func(entries []*serviceEntry) (problems []policy.Problem) {
		a.byRef = make(map[policy.ServiceRef]*serviceEntry, len(entries))
		for _, e := range entries {
			a.byRef[e.ref] = e
		}
		a.state.Cluster.Services, problems = listServices(entries)
		return problems
	})
	moved = s.bringSlices() || moved
	if moved {
		s.resolve()
	}
	if !news && !moved {
		return a.state, false
	}
	a.state.Problems = a.problems()
	return a.state, true
}

// bringSlices brings up to date what is known of the followed Services' slices.
func (s *Source) bringSlices() (news bool) {
	a := &s.assembly
	for ref := range a.slices {
		if s.followed[ref] == nil {
			delete(a.slices, ref)
			news = true
		}
	}
	for ref, f := range s.followed {
		p := a.slices[ref]
		if p == nil {
			p = &slicesPart{}
			a.slices[ref] = p
			news = true
		}
		news = bring(&p.part, f.slices, func(entries []*sliceEntry) []policy.Problem {
			p.entries = entries
			return nil
		}) || news
	}
	return news
}

// resolve makes the resolvers anew, in a map of their own: the last is the receiver's.
func (s *Source) resolve() {
	a := &s.assembly
	a.state.Cluster.Resolvers = make(map[policy.ServiceRef]policy.Resolver, len(a.slices))
	for ref, p := range a.slices {
		a.state.Cluster.Resolvers[ref], p.problems = resolver(a.byRef[ref], p.entries)
	}
}

func (a *assembly) problems() []policy.Problem {
	all := slices.Concat(a.policies.problems, a.pods.problems, a.services.problems, a.nodes.problems)
	for _, p := range a.slices {
		all = append(all, p.problems...)
	}
	slices.SortStableFunc(all, compareProblems)
	return all
}

func compareProblems(a, b policy.Problem) int {
	for _, c := range []int{strings.Compare(a.Object, b.Object), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message)} {
		if c != 0 {
			return c
		}
	}
	return 0
}
