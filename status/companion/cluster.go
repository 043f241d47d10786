package companion

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// idOf returns the key of a policy in State: "namespace/name", or "clusterpolicy name".
func idOf(p *v1alpha1.FQDNNetworkPolicy) string {
	if p.Kind == v1alpha1.ClusterKind {
		return cfqdnnp.Object(p.Name)
	}
	return p.Namespace + "/" + p.Name
}

// kindOf returns the kind of a policy, which objects of the API server may leave out.
func kindOf(p *v1alpha1.FQDNNetworkPolicy) string {
	if p.Kind == v1alpha1.ClusterKind {
		return p.Kind
	}
	return v1alpha1.Kind
}

// inNamespace tells the policies of one UID apart: a cluster policy is one in each namespace.
type inNamespace struct {
	uid       types.UID
	namespace string
}

func keyOf(p *v1alpha1.FQDNNetworkPolicy) inNamespace { return inNamespace{p.UID, p.Namespace} }

// policies returns the policies that companions are for, by a unique name: the namespaced ones,
// and each accepted cluster policy as one of each namespace that it may select pods of and that
// has a NetworkPolicy that limits egress.
func (s *State) policies(others []*networkingv1.NetworkPolicy) map[string]*v1alpha1.FQDNNetworkPolicy {
	limited := map[string]bool{}
	for _, n := range others {
		if limiting(n) {
			limited[n.Namespace] = true
		}
	}
	out := make(map[string]*v1alpha1.FQDNNetworkPolicy, len(s.Policies))
	maps.Copy(out, s.Policies)
	for _, p := range s.Cluster {
		namespaces, pods := subjectOf(p)
		selector, err := metav1.LabelSelectorAsSelector(namespaces)
		if !s.Accepted[cfqdnnp.Object(p.Name)] || err != nil {
			continue
		}
		spec := v1alpha1.FQDNNetworkPolicySpec{PodSelector: pods, Enforcement: p.Spec.Enforcement, Egress: accepted(p)}
		for name := range limited {
			own := s.Namespaces[name]
			if own == nil {
				own = map[string]string{corev1.LabelMetadataName: name}
			}
			if selector.Matches(labels.Set(own)) {
				one := &v1alpha1.FQDNNetworkPolicy{TypeMeta: metav1.TypeMeta{Kind: v1alpha1.ClusterKind}, ObjectMeta: p.ObjectMeta, Spec: spec}
				one.Namespace = name
				out[name+"/"+idOf(one)] = one
			}
		}
	}
	return out
}

// subjectOf returns the selectors of a policy's subject; nil, which selects nothing, for nodes.
func subjectOf(p *v1alpha1.ClusterFQDNNetworkPolicy) (namespaces *metav1.LabelSelector, pods metav1.LabelSelector) {
	if of := p.Spec.Subject.Pods; of != nil && of.PodSelector != nil {
		return of.NamespaceSelector, *of.PodSelector
	}
	return p.Spec.Subject.Namespaces, pods
}

// noService is a name that no Service has: the ports of networks are those of the rule.
const noService = "networks.invalid"

// accepted returns the rules by which the Admin tier accepts connections, before the
// NetworkPolicies of namespaces: as rules of a namespace, of which a policy has a limited number.
func accepted(p *v1alpha1.ClusterFQDNNetworkPolicy) (out []v1alpha1.EgressRule) {
	for i := range p.Spec.Egress {
		r := &p.Spec.Egress[i]
		if p.Spec.Tier != v1alpha1.TierAdmin || r.Action != v1alpha1.ActionAccept || r.Unreadable != "" {
			continue
		}
		rule := v1alpha1.EgressRule{Matches: r.Matches}
		if len(r.Matches) == 0 {
			name := noService
			rule.Matches = []v1alpha1.Match{{Name: &name}}
		}
		for _, port := range r.Ports {
			rule.Ports = append(rule.Ports, v1alpha1.Port(port))
		}
		out = append(out, rule)
	}
	return out
}

// ownedByPolicy tells whether a policy of either kind owns an object.
func ownedByPolicy(n *networkingv1.NetworkPolicy) bool {
	owner := metav1.GetControllerOf(n)
	return owner != nil && (owner.Kind == v1alpha1.Kind || owner.Kind == v1alpha1.ClusterKind) && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
}
