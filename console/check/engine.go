package check

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// dnsBlocked is the condition of policies whose pods' queries another engine drops.
const dnsBlocked = "DNSBlocked"

// anotherEngine finds policies whose connections another NetworkPolicy engine denies: by their
// condition in the cluster, or as the NetworkPolicy for that engine is there, and for other ports.
func (m *Manifests) anotherEngine(o Options) (findings []Finding) {
	domain, _ := fqdn.ParseName(o.ClusterDomain)
	services := m.dialledServices(domain)
	for i := range m.Policies {
		p := &m.Policies[i]
		if message := m.forEngine(p.Status.Conditions, netpolicyfor.Of(&p.FQDNNetworkPolicy, services)); message != "" {
			findings = append(findings, p.finding(Warning, AnotherEngine, "spec.podSelector", message))
		}
	}
	for i := range m.ClusterPolicies {
		p := &m.ClusterPolicies[i]
		var in []*netpolicyfor.Policy
		for _, namespace := range m.limited() {
			if p.ours != nil {
				in = append(in, netpolicyfor.OfCluster(p.ours, namespace, m.namespaceLabels(namespace), services))
			}
		}
		if len(in) == 0 {
			continue
		}
		if message := m.forEngine(p.ours.Status.Conditions, in...); message != "" {
			findings = append(findings, p.finding(Warning, AnotherEngine, "spec.subject", message))
		}
	}
	return findings
}

// limited returns the namespaces with NetworkPolicies.
func (m *Manifests) limited() (namespaces []string) {
	for _, n := range m.NetworkPolicies {
		namespaces = append(namespaces, n.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// forEngine says what a policy needs from another engine, "" without a sign that there is one.
func (m *Manifests) forEngine(conditions []metav1.Condition, policies ...*netpolicyfor.Policy) string {
	var needed []*networkingv1.NetworkPolicy
	engine := meta.IsStatusConditionTrue(conditions, dnsBlocked)
	for _, p := range policies {
		others := m.networkPoliciesOf(p.Namespace)
		of := p.Beside(others, netpolicyfor.Endpoint())
		engine = engine || slices.ContainsFunc(of, func(n *networkingv1.NetworkPolicy) bool {
			return slices.ContainsFunc(others, func(o *networkingv1.NetworkPolicy) bool { return o.Name == n.Name })
		})
		needed = append(needed, of...)
	}
	if !engine || len(needed) == 0 {
		return ""
	}
	return "another NetworkPolicy engine denies what the policy allows; apply beside it: " + netpolicyfor.Text(needed)
}
