package check

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy/netpolicyfor"
)

// dnsBlocked is the condition of policies whose pods' queries another engine drops.
const dnsBlocked = "DNSBlocked"

// anotherEngine finds that another NetworkPolicy engine denies connections of a policy: by the
// condition in the cluster, or as the NetworkPolicy for that engine is there, and for other ports.
func (l *linter) anotherEngine(p *Policy) {
	switch {
	case p.own != nil:
		l.warn(p, AnotherEngine, p.subject(), l.forEngine(p.own.Status.Conditions, netpolicyfor.Of(p.own, l.dials)))
	case p.ours != nil:
		var in []*netpolicyfor.Policy
		for _, namespace := range l.limited() {
			in = append(in, netpolicyfor.OfCluster(p.ours, namespace, l.namespaceLabels(namespace), l.dials))
		}
		l.warn(p, AnotherEngine, p.subject(), l.forEngine(p.ours.Status.Conditions, in...))
	}
}

// limited returns the namespaces with NetworkPolicies.
func (m *Manifests) limited() (namespaces []string) {
	for _, p := range m.Policies {
		if p.network != nil {
			namespaces = append(namespaces, p.namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// forEngine says what a policy needs from another engine, "" without a sign that there is one. Where Namegate is
// the engine, that is the condition alone.
func (l *linter) forEngine(conditions []metav1.Condition, policies ...*netpolicyfor.Policy) string {
	var needed []*networkingv1.NetworkPolicy
	engine := meta.IsStatusConditionTrue(conditions, dnsBlocked)
	for _, p := range policies {
		others := l.networkPoliciesOf(p.Namespace)
		of := p.Beside(others, netpolicyfor.Endpoint())
		engine = engine || !l.EnforceNetworkPolicies && slices.ContainsFunc(of, func(n *networkingv1.NetworkPolicy) bool {
			return slices.ContainsFunc(others, func(o *networkingv1.NetworkPolicy) bool { return o.Name == n.Name })
		})
		needed = append(needed, of...)
	}
	if !engine || len(needed) == 0 {
		return ""
	}
	return "another NetworkPolicy engine denies what the policy allows; apply beside it: " + netpolicyfor.Text(needed)
}
