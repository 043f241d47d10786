package suggest

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// Restore returns the cluster policy that accepts the names of policies of one namespace, all of
// which select the pod of the view, and denies the rest to the pods that all of them select,
// whatever NetworkPolicies allow. ok is false if it would be beyond the bounds of one policy.
func Restore(v *policy.View, policies []v1alpha1.FQDNNetworkPolicy) (p v1alpha1.ClusterFQDNNetworkPolicy, ok bool) {
	pods, name := &metav1.LabelSelector{MatchLabels: map[string]string{}}, "restore-"+v.Pod.Namespace
	for i := range policies {
		s := &policies[i].Spec.PodSelector
		maps.Copy(pods.MatchLabels, s.MatchLabels) // one pod has them all
		pods.MatchExpressions = append(pods.MatchExpressions, s.MatchExpressions...)
		name += "-" + policies[i].Name
	}
	const most = 200 // of 253
	p.TypeMeta = typeMeta(v1alpha1.ClusterKind)
	p.Name = strings.TrimRight(name[:min(len(name), most)], "-.")
	// Last of its tier; a policy for the pods of more policies comes before those of each.
	priority := int32(max(cfqdnnp.MaxPriority+1-len(policies), 0))
	p.Spec = v1alpha1.ClusterFQDNNetworkPolicySpec{Tier: v1alpha1.TierAdmin, Priority: &priority, Subject: v1alpha1.ClusterSubject{Pods: &v1alpha1.PodSubject{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: v.Pod.Namespace}}, PodSelector: pods,
	}}}
	if len(policies) == 1 {
		p.Spec.TTL, p.Spec.DNS.DNSLimits, p.Spec.Denied = policies[0].Spec.TTL, policies[0].Spec.DNS.DNSLimits, policies[0].Spec.Denied
	}
	if len(v.Rules.NamespaceDeny) > 0 {
		p.Spec.DNS.Encrypted = v1alpha1.EncryptedDNSDeny
	}
	if !v.InForce() {
		p.Spec.Enforcement = v1alpha1.EnforcementAudit
	}
	ok = true
	add := func(of []*policy.Rule, serverName v1alpha1.ServerName) {
		for _, r := range Rules(allowedBy(v, of)) {
			for names := range slices.Chunk(r.Names, cfqdnnp.MaxMatches) {
				p.Spec.Egress = append(p.Spec.Egress, clusterRules([]Rule{{names, r.Ports, serverName}}, matchNames)...)
			}
			ok = ok && len(r.Ports) <= cfqdnnp.MaxPorts
		}
	}
	add(v.Rules.Namespace, "")
	add(v.Rules.NamespaceChecked, v1alpha1.ServerNameRequire)
	p.Spec.Egress = append(p.Spec.Egress, v1alpha1.ClusterEgressRule{Name: "rest", Action: v1alpha1.ActionDeny})
	return p, ok && len(p.Spec.Egress) <= cfqdnnp.MaxRules
}

// allowedBy returns the ports of each name that the rules in force of a view allow.
func allowedBy(v *policy.View, rules []*policy.Rule) map[string]policy.PortSet {
	allowed := map[string]policy.PortSet{}
	for _, r := range rules {
		for _, m := range r.Matches {
			if r.Audit == !v.InForce() {
				text := m.Pattern.String()
				allowed[text] = policy.NewPortSet(append(allowed[text].Ranges(), r.Ports.Ranges()...)...)
			}
		}
	}
	return allowed
}
