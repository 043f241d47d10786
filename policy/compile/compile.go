package compile

import (
	"reflect"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// Compiler makes snapshots, and keeps intermediate results for the next compile: the
// parsed policies, the policies that select a pod, and their union. So the cost of a
// change depends on its size. It is for one goroutine.
type Compiler struct {
	number    uint64
	serial    uint64
	policies  objects[*v1alpha1.FQDNNetworkPolicy, *parsed]
	egress    netPolicies
	ingress   netPolicies // without any where they do not count
	cluster   clusterPolicies
	selected  map[policy.PodRef]*selection
	rulesets  selections[*parsed, *ruleset]
	ingresses map[ingressParts]*sharedIngress
	conflicts map[policy.PodRef]*policy.View // closed views, by their made-up pod
	node      nodeSelection
	sets      map[policy.Peer]*liveSet
	asked     []*liveSet        // all of sets, nil if they changed
	sorted    []*liveSet        // the sets for which there is room, nil if sets changed
	came      []*peers.Spec     // the specs of sets that are new since the index was updated
	went      []*peers.Spec     // the specs that were in sets then, or came since, and are not
	peerSets  []*policy.PeerSet // of the last snapshot, nil if one of them changed
	index     *peers.Index      // nil while no view asks for pods
	room      cost              // nodeQuota, but for tests
}

// parsed is a policy of a namespace, or a NetworkPolicy, that was read. It is immutable.
type parsed struct {
	*ordered.Policy
	encrypted *policy.Rule // of fqdnnp.Policy
	matches   int          // of the rules
	labels    int          // of their patterns with a wildcard
	serial    uint64       // of the parse in its compiler
}

func (p *parsed) id() string     { return p.ID }
func (p *parsed) number() uint64 { return p.serial }

// selection is the compiler's state of one local pod.
type selection struct {
	pod     policy.Pod
	rules   *ruleset // nil: no FQDNNetworkPolicy selects the pod
	egress  netSelection
	ingress netSelection
	cluster *clusterRules // nil: no cluster policy selects the pod
	// clusterAt is the last compile that found out cluster.
	clusterAt uint64
	view      *policy.View
	seen      uint64
	viewOf    viewParts // what view was made of
}

// New returns a compiler that has learned nothing yet.
func New() *Compiler {
	c := &Compiler{selected: map[policy.PodRef]*selection{}, conflicts: map[policy.PodRef]*policy.View{}, ingresses: map[ingressParts]*sharedIngress{}, sets: map[policy.Peer]*liveSet{}, room: nodeQuota}
	c.policies = objects[*v1alpha1.FQDNNetworkPolicy, *parsed]{
		same:  func(a, b *v1alpha1.FQDNNetworkPolicy) bool { return reflect.DeepEqual(a.Spec, b.Spec) },
		read:  c.parse,
		known: map[policyKey]*object[*v1alpha1.FQDNNetworkPolicy, *parsed]{}, spaces: map[string]*space[*parsed]{},
	}
	c.egress, c.ingress = c.newNetPolicies(false), c.newNetPolicies(true)
	c.cluster = newClusterPolicies()
	c.cluster.unions = selections[*clusterGroup, *clusterRules]{make: c.newClusterRules, unions: map[string]*clusterRules{}}
	c.cluster.inbound = selections[*clusterGroup, *clusterIngress]{make: c.newClusterIngress, unions: map[string]*clusterIngress{}}
	c.rulesets = selections[*parsed, *ruleset]{make: newRuleset, unions: map[string]*ruleset{}}
	return c
}

// Compile returns the snapshot of in. A view whose pod, policies and NetworkPolicies are
// unchanged since the last snapshot is the same *View, and a peer set with unchanged
// members is the same *PeerSet.
func (c *Compiler) Compile(in Input) *policy.Snapshot {
	c.number++
	s := &draft{Snapshot: policy.Snapshot{Number: c.number, Remote: in.Remote, RemoteNamespaces: in.RemoteNamespaces}}
	if in.PeersUnknown {
		s.RemoteNamespaces = []string{}
	}
	c.policies.update(c.number, in.Policies, func(p *parsed, twice bool) {
		s.read(kindPolicy, p.ID, p.Problems, twice)
	})
	c.egress.update(c.number, in.NetworkPolicies, func(n *parsed, twice bool) {
		s.read(kindNetworkPolicy, n.ID, n.Problems, twice)
	})
	c.readClusterPolicies(in, s)
	var inbound []*networkingv1.NetworkPolicy
	if in.EnforceNetworkPolicies || slices.ContainsFunc(c.cluster.sorted, (*clusterPolicy).isolates) {
		inbound = in.NetworkPolicies
	}
	c.ingress.update(c.number, inbound, func(n *parsed, twice bool) {
		if !twice {
			s.Problems = append(s.Problems, n.Problems...)
		}
	})
	c.makeViews(in, s)
	c.fillPeerSets(s)
	c.rulesets.forget(c.number)
	slices.SortStableFunc(s.Problems, func(a, b policy.Problem) int { return strings.Compare(a.Object, b.Object) })
	return policy.NewSnapshot(s.Snapshot, s.pods, s.podByAddr)
}

// read notes the problems of an object of a kind, or that it is given twice.
func (s *draft) read(kind, id string, problems []policy.Problem, twice bool) {
	if twice {
		problems = []policy.Problem{{
			Object: kind + id, Reason: policy.ReasonPartiallyInvalid,
			Message: "the policy is given twice; the first one counts, remove or rename the other",
		}}
	}
	s.Problems = append(s.Problems, problems...)
}

func (c *Compiler) parse(p *v1alpha1.FQDNNetworkPolicy) *parsed {
	c.serial++
	r := fqdnnp.Read(p)
	k := &parsed{Policy: &r.Policy, encrypted: r.Encrypted, serial: c.serial}
	for _, rule := range r.Rules {
		if rule.ServerName {
			rule.ID = rule.NewID()
		}
		k.matches += len(rule.Matches)
		k.labels += wildLabels(rule.Matches)
	}
	return k
}
