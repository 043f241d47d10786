// Package policytest builds policies, pods and their parts from short texts. Tests of every
// package above policy and policy/fqdn call it. It does not know policy/compile, whose tests
// call it too.
package policytest

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// Name parses a DNS name.
func Name(s string) fqdn.Name {
	n, err := fqdn.ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

// Addrs parses addresses between blanks.
func Addrs(s string) (out []netip.Addr) {
	for w := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParseAddr(w))
	}
	return out
}

// Ref is a pod of the namespace shop.
func Ref(name string) policy.PodRef {
	return policy.PodRef{Namespace: "shop", Name: name, UID: "uid-" + name}
}

// Pod is a pod of this node in the namespace shop that the named policies select.
func Pod(name, ips string, selectedBy ...string) policy.Pod {
	p := policy.Pod{PodRef: Ref(name), IPs: Addrs(ips), Labels: map[string]string{}}
	for _, l := range selectedBy {
		p.Labels[l] = "yes"
	}
	return p
}

// Rules has rules by tier, those of one tier in the given order.
func Rules(rules ...*policy.Rule) (out policy.Rules) {
	for _, r := range rules {
		tier := map[policy.Tier]*[]*policy.Rule{policy.Admin: &out.Admin, policy.Namespace: &out.Namespace, policy.Baseline: &out.Baseline}[r.Tier]
		switch {
		case r.Tier == policy.Namespace && r.Action == policy.Deny:
			tier = &out.NamespaceDeny
		case r.Tier == policy.Namespace && r.ServerName:
			tier = &out.NamespaceChecked
		}
		*tier = append(*tier, r)
	}
	return out
}

// Policy is a policy that selects the pods of the namespace shop that are labelled with its
// name. Each rule is a port set followed by names and patterns.
func Policy(name string, rules ...string) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec.PodSelector.MatchLabels = map[string]string{name: "yes"}
	for _, r := range rules {
		words := strings.Fields(r)
		p.Spec.Egress = append(p.Spec.Egress, v1alpha1.EgressRule{Matches: Matches(words[1:]...), Ports: ports(policy.PortSet(words[0]))})
	}
	return p
}

// ClusterPolicy is a cluster policy with a spec in YAML.
func ClusterPolicy(t fatal.T, name, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec), spec)
	return p
}

// NodePolicy is a policy for nodes with a spec in YAML.
func NodePolicy(t fatal.T, name, spec string) *v1alpha1.NodeNetworkPolicy {
	t.Helper()
	p := &v1alpha1.NodeNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec), spec)
	return p
}

// Matches has a pattern for each text with a wildcard and a name for the others.
func Matches(texts ...string) (out []v1alpha1.Match) {
	for _, text := range texts {
		if strings.Contains(text, "*") {
			out = append(out, v1alpha1.Match{Pattern: &text})
		} else {
			out = append(out, v1alpha1.Match{Name: &text})
		}
	}
	return out
}

func ports(s policy.PortSet) (out []v1alpha1.Port) {
	for _, r := range s.Ranges() {
		if r.Protocol == policy.AnyProtocol {
			return nil
		}
		protocol := v1alpha1.Protocol(strings.ToUpper(r.Protocol.String()))
		p := v1alpha1.Port{Protocol: &protocol}
		if first, last := int32(r.First), int32(r.Last); first != 0 || last != 65535 {
			p.Port, p.EndPort = &first, &last
		}
		out = append(out, p)
	}
	return out
}

// Pointers returns pointers to the elements of a list.
func Pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
