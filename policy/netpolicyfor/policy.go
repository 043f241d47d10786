package netpolicyfor

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// Policy is what a policy of Namegate needs from another engine in a namespace.
type Policy struct {
	Namespace string
	Name      string // of the policy
	OfCluster bool   // show the object only to viewers who may get the cluster policy
	pods      metav1.LabelSelector
	egress    []networkingv1.NetworkPolicyEgressRule // none: nothing is needed
}

// Services are the Services of a cluster, and the domain of their names. The other engine judges
// the port of the pod behind a Service, so the object has the target ports of Services that rules
// name. A caller passes only Services whose ports the viewer may see.
type Services struct {
	Domain fqdn.Name
	List   []*policy.Service
}

// Of returns what a policy of a namespace needs. A policy that only audits needs nothing.
func Of(p *v1alpha1.FQDNNetworkPolicy, s Services) *Policy {
	out := &Policy{Namespace: p.Namespace, Name: p.Name, pods: p.Spec.PodSelector}
	if read := fqdnnp.Read(p); p.Spec.Enforcement != v1alpha1.EnforcementAudit {
		out.egress = egress(read.Rules, s)
	}
	return out
}

// OfCluster returns what a cluster policy needs in a namespace with labels: for the rules by which
// the Admin tier accepts connections, before NetworkPolicies are asked.
func OfCluster(p *v1alpha1.ClusterFQDNNetworkPolicy, namespace string, labels map[string]string, s Services) *Policy {
	out := &Policy{Namespace: namespace, Name: p.Name, OfCluster: true}
	namespaces := p.Spec.Subject.Namespaces
	if of := p.Spec.Subject.Pods; of != nil && of.PodSelector != nil {
		namespaces, out.pods = of.NamespaceSelector, *of.PodSelector
	}
	selector, err := peers.NewSelector(namespaces)
	if labels == nil {
		labels = map[string]string{corev1.LabelMetadataName: namespace}
	}
	if err != nil || namespaces == nil || !selector.Matches(labels) || p.Spec.Enforcement == v1alpha1.EnforcementAudit {
		return out
	}
	var rules []*policy.Rule
	for _, r := range cfqdnnp.Read(p).Rules {
		if r.Tier == policy.Admin && r.Action == policy.Accept && !r.Broken {
			rules = append(rules, r.Rule)
		}
	}
	out.egress = egress(rules, s)
	return out
}

// target is a port of pods: a number, or the name of a container's port.
type target struct {
	policy.Protocol
	name string
}

// egress returns the rule that opens the ports of rules to every destination: none without ports,
// since a rule that has none opens all of them.
func egress(rules []*policy.Rule, s Services) []networkingv1.NetworkPolicyEgressRule {
	var ranges []policy.PortRange
	var matches []*policy.Match
	for _, r := range rules {
		ranges, matches = append(ranges, r.Ports.Ranges()...), append(matches, r.Matches...)
	}
	set := policy.NewPortSet(ranges...)
	if set == policy.AnyPort {
		return []networkingv1.NetworkPolicyEgressRule{{}}
	}
	names := map[target]bool{}
	for _, p := range s.targets(matches) {
		if p.TargetName != "" {
			names[target{p.Protocol, p.TargetName}] = true
		} else {
			ranges = append(ranges, policy.PortRange{Protocol: p.Protocol, First: p.Target, Last: p.Target})
		}
	}
	var rule networkingv1.NetworkPolicyEgressRule
	for _, r := range policy.NewPortSet(ranges...).Ranges() {
		out := port(r.Protocol, intstr.FromInt32(int32(r.First)))
		if last := int32(r.Last); r.Last > r.First {
			out.EndPort = &last
		}
		if r.First == 0 { // every port: rules have no port 0
			out.Port, out.EndPort = nil, nil
		}
		rule.Ports = append(rule.Ports, out)
	}
	for _, t := range sorted(names) {
		rule.Ports = append(rule.Ports, port(t.Protocol, intstr.FromString(t.name)))
	}
	if len(rule.Ports) == 0 {
		return nil
	}
	return []networkingv1.NetworkPolicyEgressRule{rule}
}

// targets returns the ports of Services that matches open and that lead to other ports of pods.
func (s Services) targets(matches []*policy.Match) (out []policy.ServicePort) {
	slices.SortFunc(matches, (*policy.Match).Compare)
	matcher := policy.NewMatcher(matches)
	for _, service := range s.List {
		name, ok := s.Domain.Child(service.Ref.Name, service.Ref.Namespace, "svc")
		if !ok || s.Domain == "" {
			continue
		}
		for _, m := range matcher.Match(name) {
			for _, p := range service.Ports {
				if m.Ports.Contains(p.Protocol, p.Port) && (p.TargetName != "" || p.Target != p.Port) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

func sorted(names map[target]bool) (out []target) {
	for t := range names {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), strings.Compare(a.name, b.name))
	})
	return out
}
