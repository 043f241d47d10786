package netpolicyfor

import (
	"cmp"
	"maps"
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
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/fqdn"
)

// Policy is what a policy of Namegate needs from another engine in a namespace.
type Policy struct {
	Namespace string
	Name      string // of the policy
	OfCluster bool   // show the object only to viewers who may get the cluster policy
	pods      metav1.LabelSelector
	egress    []networkingv1.NetworkPolicyEgressRule // none: nothing is needed, but for serverNames
	// serverNames: rules require the server name. The other engine sees their connections go to the agent.
	serverNames bool
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
		out.open(read.Rules, s)
	}
	return out
}

// OfCluster returns what a cluster policy needs in a namespace with labels: for the rules by which
// the Admin tier accepts connections, before NetworkPolicies are asked.
func OfCluster(p *v1alpha1.ClusterFQDNNetworkPolicy, namespace string, labels map[string]string, s Services) *Policy {
	out := &Policy{Namespace: namespace, Name: p.Name, OfCluster: true}
	if labels == nil {
		labels = map[string]string{corev1.LabelMetadataName: namespace}
	}
	read := cfqdnnp.Read(p)
	if read.Namespaces == nil || !read.Namespaces.Matches(labels) || read.Audit {
		return out
	}
	if of := p.Spec.Subject.Pods; of != nil {
		out.pods = *of.PodSelector
	}
	out.open(slices.DeleteFunc(read.Rules, func(r ordered.Rule) bool {
		return r.Tier != policy.Admin || r.Action != policy.Accept || r.Broken
	}), s)
	return out
}

// target is a port of pods: a number, or the name of a container's port.
type target struct {
	policy.Protocol
	name string
}

func (t target) compare(o target) int {
	return cmp.Or(cmp.Compare(t.Protocol, o.Protocol), strings.Compare(t.name, o.name))
}

// open adds what rules need.
func (p *Policy) open(rules []ordered.Rule, s Services) {
	rules = slices.Clone(rules)
	n := len(rules)
	rules = slices.DeleteFunc(rules, func(r ordered.Rule) bool { return r.ServerName })
	p.serverNames, p.egress = len(rules) < n, egress(rules, s)
}

// egress returns the rule that opens the ports of rules to every destination: none without ports,
// since a rule that has none opens all of them.
func egress(rules []ordered.Rule, s Services) []networkingv1.NetworkPolicyEgressRule {
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
	all := Ports(policy.NewPortSet(ranges...))
	for _, t := range slices.SortedFunc(maps.Keys(names), target.compare) {
		all = append(all, Port(t.Protocol, intstr.FromString(t.name)))
	}
	if len(all) == 0 {
		return nil
	}
	return []networkingv1.NetworkPolicyEgressRule{{Ports: all}}
}

// Ports returns the ports of protocols as a NetworkPolicy has them.
func Ports(set policy.PortSet) (all []networkingv1.NetworkPolicyPort) {
	for _, r := range set.Ranges() {
		out := Port(r.Protocol, intstr.FromInt32(int32(r.First)))
		if last := int32(r.Last); r.Last > r.First {
			out.EndPort = &last
		}
		if r.First == 0 { // every port: rules have no port 0
			out.Port, out.EndPort = nil, nil
		}
		all = append(all, out)
	}
	return all
}

// Port returns a port of a protocol by its number or name.
func Port(protocol policy.Protocol, number intstr.IntOrString) networkingv1.NetworkPolicyPort {
	name := corev1.Protocol(strings.ToUpper(protocol.String()))
	return networkingv1.NetworkPolicyPort{Protocol: &name, Port: &number}
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
