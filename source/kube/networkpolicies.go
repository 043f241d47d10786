package kube

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/peers"
)

// networkPolicyEntry has the used fields of a NetworkPolicy.
type networkPolicyEntry struct {
	policy *networkingv1.NetworkPolicy
	// to and from are the namespaces whose pods must be known for egress and for ingress.
	to, from spaces
}

// readNetworkPolicy keeps the rules of a NetworkPolicy, and its name. An equal
// NetworkPolicy keeps its pointer.
func readNetworkPolicy(object any, before *networkPolicyEntry) *networkPolicyEntry {
	n, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return nil
	}
	kept := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, UID: n.UID, Labels: n.Labels},
		Spec:       n.Spec,
	}
	if before != nil && equality.Semantic.DeepEqual(before.policy, kept) {
		return before
	}
	e := &networkPolicyEntry{policy: kept}
	if !netpol.Ignored(kept) {
		e.to, e.from = leadsTo(&kept.Spec), comesFrom(&kept.Spec)
	}
	return e
}

// spaces are the namespaces whose pods are peers of the NetworkPolicies of a namespace.
type spaces struct {
	own, every bool
	selected   map[string]*peers.Selector // by labels, and by their text
}

// none tells whether no pods are peers.
func (s *spaces) none() bool { return !s.own && !s.every && len(s.selected) == 0 }

// add adds the namespaces of another NetworkPolicy of the same namespace.
func (s *spaces) add(o spaces) {
	s.own, s.every = s.own || o.own, s.every || o.every
	if s.selected == nil && len(o.selected) > 0 {
		s.selected = map[string]*peers.Selector{}
	}
	maps.Copy(s.selected, o.selected)
}

// addTo adds the namespaces that labels select to a set. namespaces are all by their labels.
func (s *spaces) addTo(set map[string]bool, namespaces map[string]map[string]string) {
	selected := slices.Collect(maps.Values(s.selected))
	for namespace, labels := range namespaces {
		if slices.ContainsFunc(selected, func(selector *peers.Selector) bool { return selector.Matches(labels) }) {
			set[namespace] = true
		}
	}
}

// requirements returns how many requirements addTo asks for each namespace at most.
func (s *spaces) requirements() (n int) {
	for _, selector := range s.selected {
		n += selector.Requirements()
	}
	return n
}

// leadsTo returns the namespaces whose pods have to be known to know a NetworkPolicy's egress:
// the namespaces of peers that are pods, and every namespace for a port by name that any address may
// have.
func leadsTo(spec *networkingv1.NetworkPolicySpec) (to spaces) {
	if len(spec.PolicyTypes) > 0 && !slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		return to
	}
	isNamed := func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.Type == intstr.String }
	isBlock := func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }
	for _, r := range spec.Egress {
		if slices.ContainsFunc(r.Ports, isNamed) && (len(r.To) == 0 || slices.ContainsFunc(r.To, isBlock)) {
			to.every = true
		}
		for i := range r.To {
			to.add(peerSpaces(&r.To[i]))
		}
	}
	return to
}

// comesFrom returns the namespaces whose pods have to be known to know a NetworkPolicy's ingress. Ports by name are
// those of its subjects.
func comesFrom(spec *networkingv1.NetworkPolicySpec) (from spaces) {
	if len(spec.PolicyTypes) > 0 && !slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		return from
	}
	for _, r := range spec.Ingress {
		for i := range r.From {
			from.add(peerSpaces(&r.From[i]))
		}
	}
	return from
}

// peerSpaces returns the namespaces of the pods of a peer. A selector that cannot be read selects
// none, as for the compiler.
func peerSpaces(p *networkingv1.NetworkPolicyPeer) (to spaces) {
	if p.NamespaceSelector == nil {
		return spaces{own: p.PodSelector != nil}
	}
	selector, err := peers.NewSelector(p.NamespaceSelector)
	switch {
	case err != nil:
		return to
	case selector.Everything():
		return spaces{every: true}
	}
	return spaces{selected: map[string]*peers.Selector{selector.String(): selector}}
}

func listNetworkPolicies(entries []*networkPolicyEntry) []*networkingv1.NetworkPolicy {
	all := make([]*networkingv1.NetworkPolicy, len(entries))
	for i, e := range entries {
		all[i] = e.policy
	}
	return all
}
