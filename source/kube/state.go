package kube

import (
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/source/cni"
)

// State is the content of the API server at one moment. The receiver may keep it and must
// not change it: later states share parts of it.
type State struct {
	Input compile.Input
	// Problems are what of the objects could not be understood, sorted by object.
	Problems []policy.Problem
	Cluster  policy.Cluster
	// Inputs counts the States that differ in more than the status and the version of policies. A
	// State with the number of the last needs no compile.
	Inputs uint64
}

// part is the contribution of one store to a State, and its version.
type part struct {
	version  version
	problems []policy.Problem
	written  bool // since the last State
}

// assembly is the State that is being put together, and its parts.
type assembly struct {
	forbidden []policy.Problem // of kinds of policies that cannot be read
	outside   []policy.Problem // of nodes outside of the cluster ranges
	ranges    *netipx.IPSet    // of which outside was made
	remote    []policy.Problem // of pods of other nodes
	// news: something was gathered since the last State; local: pods of this node.
	news, local                                                                              bool
	state                                                                                    State
	pods, policies, clusterPolicies, networkPolicies, namespaces, services, nodes, apiSlices part
	claims                                                                                   []policy.Problem // of Services
	entries                                                                                  []*serviceEntry  // all Services
	byRef                                                                                    map[policy.ServiceRef]*serviceEntry
	slices                                                                                   map[policy.ServiceRef]*slicesPart
	standard                                                                                 part
	nodePeers                                                                                []*policy.Pod
	nodeEntries                                                                              []*nodeEntry
	own, near, far                                                                           []*podEntry // of this node by their objects, with their results, and of others
	results                                                                                  cni.Results
	yielded                                                                                  map[*podEntry]*policy.Pod
}

// slicesPart is a part with the entries that it was made of.
type slicesPart struct {
	part
	entries []*sliceEntry
}

// update builds the part again if the store has changed, and tells whether compiles read the
// change.
func update[T any](p *part, from *store[T], make func([]*T) []policy.Problem) bool {
	entries, version, news := from.since(p.version)
	if !news {
		return false
	}
	input := version.input != p.version.input
	p.version, p.problems, p.written = version, make(entries), !input || p.written
	return input
}

// gather updates the objects on which the need for pods of other nodes depends, and
// computes that need. A State has these same objects, so none has a policy that was left
// out.
func (s *Source) gather() {
	a, r := &s.assembly, &s.remote
	policies := update(&a.policies, s.policies, func(entries []*policyEntry) (problems []policy.Problem) {
		a.state.Input.Policies, problems = listPolicies(entries)
		r.policySpaces = policySpacesOf(a.state.Input.Policies)
		return problems
	})
	clusterPolicies := update(&a.clusterPolicies, s.clusterPolicies.store, func(entries []*clusterPolicyEntry) (problems []policy.Problem) {
		a.state.Input.ClusterPolicies, problems = listClusterPolicies(entries)
		return problems
	})
	if s.standard != nil {
		clusterPolicies = update(&a.standard, s.standard.store, func(entries []*clusterNetworkPolicyEntry) []policy.Problem {
			a.state.Input.ClusterNetworkPolicies, r.clusterPeers, r.nodes = listClusterNetworkPolicies(entries)
			return nil
		}) || clusterPolicies
	}
	r.everySpace = len(a.state.Input.ClusterPolicies)+len(a.state.Input.ClusterNetworkPolicies) > 0
	networkPolicies := update(&a.networkPolicies, s.networkPolicies, func(entries []*networkPolicyEntry) []policy.Problem {
		a.state.Input.NetworkPolicies = listNetworkPolicies(entries)
		r.peerSpaces = peerSpacesOf(entries)
		return nil
	})
	namespaces := update(&a.namespaces, s.namespaces, func(entries []*namespaceEntry) []policy.Problem {
		a.state.Input.Namespaces = listNamespaces(entries)
		return nil
	})
	pods := update(&a.pods, s.pods, func(entries []*podEntry) []policy.Problem {
		a.own = entries
		return nil
	})
	results, changed := s.results.take()
	if changed {
		a.results = results
	}
	if pods || changed {
		near := withResults(a.own, a.results, a.near)
		if pods = pods || !slices.Equal(near, a.near); pods {
			a.near = near
			a.state.Input.Pods, a.pods.problems = localPods(near)
		}
	}
	if policies || clusterPolicies || networkPolicies || namespaces || pods {
		a.news, a.local = true, a.local || pods
		if networkPolicies || namespaces {
			r.from = nil
		}
		r.updateNeed(a.near, a.state.Input.Namespaces)
	}
}

// assemble returns the State of the gathered objects and all others, and whether it
// differs from the last. Unchanged parts are shared with it.
func (s *Source) assemble() (State, bool) {
	a := &s.assembly
	news := s.updateRemote(a.local) || a.news
	if forbidden := s.unreadKinds(); !slices.EqualFunc(forbidden, a.forbidden, sameProblem) {
		a.forbidden, news = forbidden, true
	}
	a.news, a.local = false, false
	ranges := s.ranges.Load()
	if update(&a.nodes, s.nodes, func(entries []*nodeEntry) []policy.Problem {
		a.nodeEntries, a.nodePeers = entries, nodePeers(entries)
		return listNodes(entries, &a.state.Cluster)
	}) || ranges != a.ranges {
		a.ranges, news = ranges, true
		a.outside = s.limitRanges(a.nodeEntries, &a.state.Cluster)
	}
	if nodes := a.nodePeers; s.remote.nodes && !slices.Equal(nodes, a.state.Input.Nodes) {
		a.state.Input.Nodes, news = nodes, true
	} else if !s.remote.nodes {
		a.state.Input.Nodes = nil
	}
	moved := update(&a.services, s.services, func(entries []*serviceEntry) []policy.Problem {
		a.entries = entries
		a.byRef = make(map[policy.ServiceRef]*serviceEntry, len(entries))
		for _, e := range entries {
			a.byRef[e.ref] = e
		}
		if s.apiSlices != nil {
			listAPIService(entries, &a.state.Cluster)
		}
		return listServices(entries, &a.state.Cluster)
	})
	claims := externalIPs(a.entries, ranges, &a.state.Cluster)
	if !slices.EqualFunc(claims, a.claims, sameProblem) {
		a.claims, news = claims, true
	}
	if s.apiSlices != nil {
		news = update(&a.apiSlices, s.apiSlices, func(entries []*apiSlice) []policy.Problem {
			return listAPISlices(entries, &a.state.Cluster)
		}) || news
	}
	moved = s.updateSlices() || moved
	if moved {
		s.resolve()
	}
	written := false
	for _, p := range []*part{&a.policies, &a.clusterPolicies, &a.standard} {
		written, p.written = written || p.written, false
	}
	if news || moved {
		a.state.Problems = a.problems()
		a.state.Inputs++
	}
	return a.state, news || moved || written
}

// unreadKinds returns the problems of the kinds that cannot be read.
func (s *Source) unreadKinds() []policy.Problem {
	if s.standard == nil {
		return s.clusterPolicies.unread()
	}
	return append(s.clusterPolicies.unread(), s.standard.unread()...)
}

// updateRemote takes over the pods of other nodes. With local, pods of this node changed.
func (s *Source) updateRemote(local bool) (news bool) {
	a, r := &s.assembly, &s.remote
	problems, unknown, namespaces := s.unknownPeers(), !r.known(), r.namespaces()
	news = len(problems) != len(a.remote) || a.state.Input.PeersUnknown != unknown || !slices.Equal(a.state.Input.RemoteNamespaces, namespaces)
	a.remote, a.state.Input.PeersUnknown, a.state.Input.RemoteNamespaces = problems, unknown, namespaces
	if !r.needed() {
		news = news || len(a.state.Input.Remote) > 0
		a.state.Input.Remote, a.far = nil, nil
		r.forget()
		clear(a.yielded)
		return news
	}
	far, others := r.update()
	if others {
		a.far = far
	}
	if !others && !local {
		return news
	}
	pods := remotePods(a.far, a.near, a.yielded)
	if slices.Equal(pods, a.state.Input.Remote) {
		return news
	}
	a.state.Input.Remote = pods
	return true
}

// updateSlices takes over the EndpointSlices of the watched Services.
func (s *Source) updateSlices() (news bool) {
	a := &s.assembly
	for ref := range a.slices {
		if s.sliceWatches[ref] == nil {
			delete(a.slices, ref)
			news = true
		}
	}
	for ref, f := range s.sliceWatches {
		p := a.slices[ref]
		if p == nil {
			p = &slicesPart{}
			a.slices[ref] = p
			news = true
		}
		news = update(&p.part, f.slices, func(entries []*sliceEntry) []policy.Problem {
			p.entries = entries
			return nil
		}) || news
	}
	return news
}

// resolve builds the resolvers in a new map: the last one is the receiver's.
func (s *Source) resolve() {
	a := &s.assembly
	a.state.Cluster.Resolvers = make(map[policy.ServiceRef]policy.Resolver, len(a.slices))
	for ref, p := range a.slices {
		a.state.Cluster.Resolvers[ref], p.problems = resolver(a.byRef[ref], p.entries)
	}
}

func (a *assembly) problems() []policy.Problem {
	all := slices.Concat(a.policies.problems, a.clusterPolicies.problems, a.forbidden, a.pods.problems, a.services.problems, a.claims, a.nodes.problems, a.outside, a.apiSlices.problems, a.remote)
	for _, p := range a.slices {
		all = append(all, p.problems...)
	}
	slices.SortStableFunc(all, compareProblems)
	return all
}

func sameProblem(a, b policy.Problem) bool { return compareProblems(a, b) == 0 }

func compareProblems(a, b policy.Problem) int {
	for _, c := range []int{strings.Compare(a.Object, b.Object), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message)} {
		if c != 0 {
			return c
		}
	}
	return 0
}
