package kube

import (
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// State is what the API server says at one moment. It is the receiver's to keep and
// not to change: later states share parts of it.
type State struct {
	Input compile.Input
	// Problems are what of the objects could not be understood, sorted by object.
	Problems []policy.Problem
	Cluster  policy.Cluster
	// PeersUnknown is true while pods of other nodes are needed as peers and are not
	// known: Input.Remote is empty then, and connections to them are closed.
	PeersUnknown bool
}

// part is what a State takes from one shelf, and the version that it was made of.
type part struct {
	version  uint64
	problems []policy.Problem
}

// assembly is the State that is being put together, and its parts.
type assembly struct {
	// news: something was gathered since the last State; local: pods of this node.
	news, local                                                          bool
	state                                                                State
	pods, policies, networkPolicies, namespaces, services, nodes, remote part
	byRef                                                                map[policy.ServiceRef]*serviceEntry
	slices                                                               map[policy.ServiceRef]*slicesPart
	near, far                                                            []*podEntry // of this node, and of others
	yielded                                                              map[*podEntry]*policy.Pod
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

// gather brings up to date what pods of other nodes are needed for, and judges that. A
// State has of this what was gathered, so that none has a policy that was not judged.
func (s *Source) gather() {
	a, r := &s.assembly, &s.remote
	policies := bring(&a.policies, s.policies, func(entries []*policyEntry) (problems []policy.Problem) {
		a.state.Input.Policies, problems = listPolicies(entries)
		r.spaces = spacesOf(a.state.Input.Policies)
		return problems
	})
	networkPolicies := bring(&a.networkPolicies, s.networkPolicies, func(entries []*networkPolicyEntry) []policy.Problem {
		a.state.Input.NetworkPolicies = listNetworkPolicies(entries)
		r.wishes = wishesOf(entries)
		return nil
	})
	pods := bring(&a.pods, s.pods, func(entries []*podEntry) (problems []policy.Problem) {
		a.near = entries
		a.state.Input.Pods, problems = settlePods(entries)
		return problems
	})
	if policies || networkPolicies || pods {
		a.news, a.local = true, a.local || pods
		r.judge(a.near)
	}
}

// assemble returns the State of what was gathered and of all else now, and whether it
// is another than the last. What did not change is shared with it.
func (s *Source) assemble() (State, bool) {
	a := &s.assembly
	news := s.bringRemote(a.local) || a.news
	a.news, a.local = false, false
	news = bring(&a.namespaces, s.namespaces, func(entries []*spaceEntry) []policy.Problem {
		a.state.Input.Namespaces = listNamespaces(entries)
		return nil
	}) || news
	news = bring(&a.nodes, s.nodes, func(entries []*nodeEntry) []policy.Problem {
		return listNodes(entries, s.node, &a.state.Cluster)
	}) || news
	moved := bring(&a.services, s.services, func(entries []*serviceEntry) []policy.Problem {
		a.byRef = make(map[policy.ServiceRef]*serviceEntry, len(entries))
		for _, e := range entries {
			a.byRef[e.ref] = e
		}
		return listServices(entries, &a.state.Cluster)
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

// bringRemote brings up to date what is known of pods of other nodes. With local, pods
// of this node changed.
func (s *Source) bringRemote(local bool) (news bool) {
	a, r := &s.assembly, &s.remote
	problems := s.unknownPeers()
	news = len(problems) != len(a.remote.problems) || a.state.PeersUnknown == r.known()
	a.remote.problems, a.state.PeersUnknown = problems, !r.known()
	if !r.needed || !r.known() {
		news = news || len(a.state.Input.Remote) > 0
		a.state.Input.Remote, a.far, a.remote.version = nil, nil, 0
		clear(a.yielded)
		return news
	}
	far, version, others := r.pods.since(a.remote.version)
	if others {
		a.far, a.remote.version = far, version
	}
	if !others && !local {
		return news
	}
	pods := settleRemote(a.far, a.near, a.yielded)
	if slices.Equal(pods, a.state.Input.Remote) {
		return news
	}
	a.state.Input.Remote = pods
	return true
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
	all := slices.Concat(a.policies.problems, a.pods.problems, a.services.problems, a.nodes.problems, a.remote.problems)
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
