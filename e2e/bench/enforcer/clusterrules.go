package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

const (
	// clusterPolicies is how many cluster policies there are, of rulesEach rules.
	clusterPolicies, rulesEach = 100, 10
	// teams distinguish namespaces.
	teams = 5
)

func team(i int) string { return fmt.Sprintf("team-%d", i%teams) }

// kindOfPolicy is the rules of a cluster policy, by the last digit of its number: of ten, four deny
// names, one denies networks, two accept names on TCP 443, one accepts networks on TCP 443,
// one passes names, and one is of the Baseline tier.
var kindOfPolicy = [10]func(n int) v1alpha1.ClusterEgressRule{
	denyNames, acceptNames, denyNames, denyNetworks, denyNames, passNames, denyNames, acceptNetworks, acceptNames, baseline,
}

func denyNames(n int) v1alpha1.ClusterEgressRule {
	return clusterRule(v1alpha1.ActionDeny, nil, fmt.Sprintf("deny-%d.test", n), fmt.Sprintf("**.deny-%d.test", n))
}

func acceptNames(n int) v1alpha1.ClusterEgressRule {
	return clusterRule(v1alpha1.ActionAccept, []int32{443}, fmt.Sprintf("registry-%d.test", n), fmt.Sprintf("*.registry-%d.test", n), fmt.Sprintf("w*-%d.cdn.test", n))
}

func passNames(n int) v1alpha1.ClusterEgressRule {
	return clusterRule(v1alpha1.ActionPass, nil, fmt.Sprintf("**.zone-%d.test", n))
}

func denyNetworks(n int) v1alpha1.ClusterEgressRule {
	return withNetworks(clusterRule(v1alpha1.ActionDeny, nil), n)
}

func acceptNetworks(n int) v1alpha1.ClusterEgressRule {
	return withNetworks(clusterRule(v1alpha1.ActionAccept, []int32{443}), n)
}

func baseline(n int) v1alpha1.ClusterEgressRule {
	if n%2 == 0 {
		return acceptNames(n)
	}
	return denyNetworks(n)
}

func clusterRule(action v1alpha1.Action, ports []int32, names ...string) v1alpha1.ClusterEgressRule {
	r := v1alpha1.ClusterEgressRule{Action: action, Matches: matches(names...)}
	tcp := v1alpha1.ProtocolTCP
	for _, port := range ports {
		r.Ports = append(r.Ports, v1alpha1.Port{Protocol: &tcp, Port: &port})
	}
	return r
}

// withNetworks adds three networks of 198.18.0.0/15 and one of IPv6, which no other number has.
func withNetworks(r v1alpha1.ClusterEgressRule, n int) v1alpha1.ClusterEgressRule {
	for i := range 3 {
		at := n*3 + i
		r.Networks = append(r.Networks, v1alpha1.Network(fmt.Sprintf("198.%d.%d.%d/28", 18+at>>12, at>>4&255, at&15<<4)))
	}
	r.Networks = append(r.Networks, v1alpha1.Network(fmt.Sprintf("2001:db8:%x::/48", 0x1000+n)))
	return r
}

// clusterPolicy is the cluster policy of a number. Of twenty, one is for the namespaces of a
// team and one for the pods of an app; the others are for every pod.
func clusterPolicy(i int) *v1alpha1.ClusterFQDNNetworkPolicy {
	priority := int32(i)
	p := &v1alpha1.ClusterFQDNNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "namegate.io/v1alpha1", Kind: "ClusterFQDNNetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cluster-%03d", i)},
		Spec:       v1alpha1.ClusterFQDNNetworkPolicySpec{Tier: v1alpha1.TierAdmin, Priority: &priority},
	}
	switch i % 20 {
	case 1:
		p.Spec.Subject.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team(i / 20)}}
	case 12:
		p.Spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", i/20)}}}
	default:
		p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	}
	if i%10 == 9 {
		p.Spec.Tier = v1alpha1.TierBaseline
	}
	for j := range rulesEach {
		p.Spec.Egress = append(p.Spec.Egress, kindOfPolicy[i%10](i*rulesEach+j))
	}
	return p
}
