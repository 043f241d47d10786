package kube

import (
	"cmp"
	"slices"
	"strings"

	"go4.org/netipx"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// assembly is the State that is being put together, and its parts.
type assembly struct {
	forbidden []policy.Problem // of kinds of policies that cannot be read
	outside   []policy.Problem // of nodes outside of the cluster ranges
	ranges    *netipx.IPSet    // of which outside was made
	remote    []policy.Problem // of pods of other nodes
	// news: something was gathered since the last State; local: pods of this node; moved: other Services are
	// watched; written: conditions.
	news, local, moved, written bool
	watched                     *[]policy.ServiceRef
	state                       State
	claims                      []policy.Problem // of Services
	byRef                       map[policy.ServiceRef]*serviceEntry
	nodePeers                   []*policy.Pod
	near, far                   []*podEntry // of this node, with their results, and of others
	results                     *cni.Results
	yielded                     map[*podEntry]*policy.Pod
}

// update calls make with the entries of a store if they changed, and tells whether compiles read the
// change. make returns the problems of the entries; it may be nil.
func update[T any](a *assembly, from *store[T], make func([]*T) []policy.Problem) bool {
	news, input := from.take()
	if news {
		if make != nil {
			from.problems = make(from.taken)
		}
		a.written = a.written || !input
	}
	return input
}

// gather updates the objects on which the need for pods of other nodes depends, and
// computes that need. A State has these same objects, so none has a policy that was left
// out.
func (s *Source) gather() {
	a, r := &s.assembly, &s.remote
	policies := update(a, s.policies, func(entries []*policyEntry) (problems []policy.Problem) {
		a.state.Input.Policies, problems = listPolicies(entries)
		r.policySpaces = policySpacesOf(a.state.Input.Policies)
		return problems
	})
	clusterPolicies := update(a, s.clusterPolicies.store, func(entries []*clusterPolicyEntry) (problems []policy.Problem) {
		a.state.Input.ClusterPolicies, problems = listPolicies(entries)
		return problems
	})
	clusterPolicies = update(a, s.nodePolicies.store, func(entries []*nodePolicyEntry) (problems []policy.Problem) {
		a.state.Input.NodePolicies, problems = listPolicies(entries)
		if s.hosts {
			r.hostPeers, r.hostNodes = nodePolicyPeers(entries)
		}
		return problems
	}) || clusterPolicies
	if s.standard != nil {
		clusterPolicies = update(a, s.standard.store, func(entries []*clusterNetworkPolicyEntry) []policy.Problem {
			var policies []*unstructured.Unstructured
			r.clusterPeers, r.nodes = false, false
			for _, e := range entries {
				policies, r.clusterPeers, r.nodes = append(policies, e.policy), r.clusterPeers || e.pods, r.nodes || e.nodes
			}
			a.state.Input.ClusterNetworkPolicies = policies
			return nil
		}) || clusterPolicies
	}
	r.everySpace = a.state.Input.EnforceNetworkPolicies || len(a.state.Input.ClusterPolicies)+len(a.state.Input.ClusterNetworkPolicies) > 0
	networkPolicies := update(a, s.networkPolicies, func(entries []*networkPolicyEntry) []policy.Problem {
		a.state.Input.NetworkPolicies = listNetworkPolicies(entries)
		r.peerSpaces = peerSpacesOf(entries, a.state.Input.EnforceNetworkPolicies)
		return nil
	})
	namespaces := update(a, s.namespaces, func(entries []*namespaceEntry) []policy.Problem {
		a.state.Input.Namespaces = listNamespaces(entries)
		return nil
	})
	pods := update(a, s.pods, nil)
	if results := s.results.Load(); results != nil && (pods || results != a.results) {
		a.results = results
		near := withResults(s.pods.taken, *results, a.near)
		if pods = pods || !slices.Equal(near, a.near); pods {
			a.near = near
			a.state.Input.Pods, s.pods.problems = localPods(near)
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
	if update(a, s.nodes, func(entries []*nodeEntry) []policy.Problem {
		a.nodePeers = nodePeers(entries)
		return listNodes(entries, &a.state.Cluster)
	}) || ranges != a.ranges {
		a.ranges, news = ranges, true
		a.outside = s.limitRanges(s.nodes.taken, &a.state.Cluster)
	}
	if wanted := s.remote.nodes || s.remote.hostNodes; wanted && !slices.Equal(a.nodePeers, a.state.Input.Nodes) {
		a.state.Input.Nodes, news = a.nodePeers, true
	} else if !wanted {
		a.state.Input.Nodes = nil
	}
	moved := update(a, s.services, func(entries []*serviceEntry) []policy.Problem {
		a.byRef = make(map[policy.ServiceRef]*serviceEntry, len(entries))
		for _, e := range entries {
			a.byRef[e.ref] = e
		}
		if s.hosts {
			listAPIService(entries, &a.state.Cluster)
		}
		return listServices(entries, &a.state.Cluster)
	})
	claims := externalIPs(s.services.taken, ranges, &a.state.Cluster)
	if !slices.EqualFunc(claims, a.claims, sameProblem) {
		a.claims, news = claims, true
	}
	for _, f := range s.sliceWatches {
		moved = update(a, f.slices, nil) || moved
	}
	if moved = moved || a.moved; moved {
		s.resolve()
	}
	written := a.written
	a.moved, a.written = false, false
	if news || moved {
		a.state.Problems = s.problems()
		a.state.Inputs++
	}
	return a.state, news || moved || written
}

// unreadKinds returns the problems of the kinds that cannot be read.
func (s *Source) unreadKinds() []policy.Problem {
	unread := append(s.clusterPolicies.unread(), s.nodePolicies.unread()...)
	if s.standard != nil {
		unread = append(unread, s.standard.unread()...)
	}
	return unread
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
		clear(a.yielded)
		return news
	}
	far, others := r.update(a)
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

// resolve builds the resolvers in a new map: the last one is the receiver's.
func (s *Source) resolve() {
	a := &s.assembly
	a.state.Cluster.Resolvers = map[policy.ServiceRef]policy.Resolver{}
	for ref, f := range s.sliceWatches {
		if s.hosts && ref == apiService {
			a.state.Cluster.APIServers.Endpoints = apiEndpoints(f.slices.taken)
		}
		service := a.byRef[ref]
		f.slices.problems = nil
		if slices.Contains(*a.watched, ref) {
			a.state.Cluster.Resolvers[ref], f.slices.problems = resolver(service, f.slices.taken)
		}
		for _, e := range f.slices.taken {
			if service != nil {
				f.slices.problems = append(f.slices.problems, e.problems...)
			}
		}
	}
}

func (s *Source) problems() []policy.Problem {
	a := &s.assembly
	all := slices.Concat(s.policies.problems, s.clusterPolicies.problems, s.nodePolicies.problems, a.forbidden, s.pods.problems, s.services.problems, a.claims, s.nodes.problems, a.outside, a.remote)
	for _, f := range s.sliceWatches {
		all = append(all, f.slices.problems...)
	}
	slices.SortStableFunc(all, compareProblems)
	return all
}

func sameProblem(a, b policy.Problem) bool { return compareProblems(a, b) == 0 }

func compareProblems(a, b policy.Problem) int {
	return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
}
