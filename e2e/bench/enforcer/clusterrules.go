package main

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
)

const (
	// clusterPolicies is how many cluster policies there are, of rulesEach rules.
	clusterPolicies = 100
	rulesEach       = 10
	// teams are what namespaces are told apart by.
	teams = 5
	// clusterRules is the state of a figure with them.
	clusterRules = "1000 cluster rules"
)

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
	r := v1alpha1.ClusterEgressRule{Action: action}
	if len(names) > 0 {
		r.Matches = rule(nil, names...).Matches
	}
	tcp := v1alpha1.ProtocolTCP
	for _, port := range ports {
		r.Ports = append(r.Ports, v1alpha1.ClusterPort{Protocol: &tcp, Port: &port})
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
		p.Spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": group(i/20, 1)}}}
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

// withClusterRules adds the cluster policies to a cluster.
func withClusterRules(in compile.Input) compile.Input {
	in.Namespaces = map[string]map[string]string{}
	for i := range in.Pods {
		name := in.Pods[i].Namespace
		in.Namespaces[name] = map[string]string{"kubernetes.io/metadata.name": name, "team": team(i % teams)}
	}
	for i := range clusterPolicies {
		in.ClusterPolicies = append(in.ClusterPolicies, clusterPolicy(i))
	}
	return in
}

// The cluster policies that change: the first denies names, the other one networks. Both select
// every pod.
const (
	changedNames    = 40
	changedNetworks = 43
)

// changedCluster returns the cluster with another rule in one cluster policy: with other
// networks, or with a port and so another set of entries; which one depends on whether turn
// is even.
func changedCluster(in compile.Input, which, turn int) compile.Input {
	p := clusterPolicy(which)
	r := &p.Spec.Egress[turn%2]
	if which == changedNetworks {
		*r = withNetworks(*r, clusterPolicies*rulesEach)
	} else {
		*r = clusterRule(r.Action, []int32{8443}, "changed.test")
	}
	in.ClusterPolicies = append([]*v1alpha1.ClusterFQDNNetworkPolicy(nil), in.ClusterPolicies...)
	in.ClusterPolicies[which] = p
	return in
}

// clusterManifest is the cluster policies as a file. Each is for the pods that the namespace's
// policies select, so that these are isolated and no others. There are no exact names: the
// agent would ask for each of them for each pod ahead of its clients.
func clusterManifest() (string, error) {
	var b strings.Builder
	for i := range clusterPolicies {
		p := clusterPolicy(i)
		p.Spec.Subject = v1alpha1.ClusterSubject{Pods: &v1alpha1.PodSubject{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"selected": "true"}}}}
		for j := range p.Spec.Egress {
			r := &p.Spec.Egress[j]
			r.Matches = slices.DeleteFunc(r.Matches, func(m v1alpha1.Match) bool { return m.Name != nil })
		}
		text, err := yaml.Marshal(p)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n" + string(text))
	}
	return b.String(), nil
}
