package main

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

const (
	// maxPolicies is how many policies the cluster has, in so many namespaces.
	maxPolicies, namespaces = 10_000, 50
	// groups is how many kinds of pods a namespace has; each policy is for one.
	groups = 5
)

// clusterState is the state of figures of the cluster.
var clusterState = fmt.Sprintf("%d policies, %d pods, %d namespaces, %d cluster rules", maxPolicies, maxPods, namespaces, clusterPolicies*rulesEach)

// cluster is the policies of a cluster and one node's pods, both spread evenly over
// namespaces; a pod is selected by each fifth policy of its namespace.
func cluster() compile.Input {
	in := compile.Input{Namespaces: map[string]map[string]string{}, Pods: pods()}
	for i := range maxPolicies {
		p := v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("ns-%d", i%namespaces), Name: fmt.Sprintf("policy-%05d", i),
		}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": group(i)}
		p.Spec.Egress = []v1alpha1.EgressRule{
			rule([]int32{443}, fmt.Sprintf("api-%d.example.org", i), fmt.Sprintf("www-%d.example.org", i), "shared.example.org",
				fmt.Sprintf("*.zone-%d.example.org", i), fmt.Sprintf("w*-%d.cdn.test", i%100)),
			rule([]int32{443, int32(8000 + i%portSets)}, fmt.Sprintf("**.deep-%d.example.org", i%500)),
		}
		in.Policies = append(in.Policies, &p)
	}
	for i := range namespaces {
		name := fmt.Sprintf("ns-%d", i)
		in.Namespaces[name] = map[string]string{"kubernetes.io/metadata.name": name, "team": team(i)}
	}
	for i := range clusterPolicies {
		in.ClusterPolicies = append(in.ClusterPolicies, clusterPolicy(i))
	}
	return in
}

func pods() (out []policy.Pod) {
	for i := range maxPods {
		a4, a6 := podAddrs(i)
		p := policy.Pod{
			PodRef: policy.PodRef{Namespace: fmt.Sprintf("ns-%d", i%namespaces), Name: fmt.Sprintf("pod-%04d", i), UID: fmt.Sprint(i)},
			Labels: map[string]string{"app": group(i), "hash": fmt.Sprint(i)},
		}
		p.IPs = append(p.IPs, a4, a6)
		out = append(out, p)
	}
	return out
}

func group(i int) string { return fmt.Sprintf("app-%d", i/namespaces%groups) }

func matches(names ...string) (out []v1alpha1.Match) {
	for _, n := range names {
		if strings.Contains(n, "*") {
			out = append(out, v1alpha1.Match{Pattern: &n})
		} else {
			out = append(out, v1alpha1.Match{Name: &n})
		}
	}
	return out
}

// rule allows names, or patterns where they have a star, on ports of TCP.
func rule(ports []int32, names ...string) v1alpha1.EgressRule {
	r, tcp := v1alpha1.EgressRule{Matches: matches(names...)}, v1alpha1.ProtocolTCP
	for _, port := range ports {
		r.Ports = append(r.Ports, v1alpha1.Port{Protocol: &tcp, Port: &port})
	}
	return r
}

// step is a change that is measured: odd turns make it, even ones take it back. limit is the
// target of bringing it into force, in ms, 0 for none.
type step struct {
	name  string
	limit float64
	do    func(in *compile.Input, turn int)
}

var steps = []step{
	{"names", 30, func(in *compile.Input, turn int) { changePolicy(in, turn, turn-1) }},
	{"ports", 30, func(in *compile.Input, turn int) { changePolicy(in, turn, turn) }},
	{"cluster rule", 0, func(in *compile.Input, turn int) {
		p := clusterPolicy(changedRule)
		r := &p.Spec.Egress[turn%2]
		*r = clusterRule(r.Action, []int32{8443}, "changed.test")
		in.ClusterPolicies = append([]*v1alpha1.ClusterFQDNNetworkPolicy(nil), in.ClusterPolicies...)
		in.ClusterPolicies[changedRule] = p
	}},
	{"pod", 50, func(in *compile.Input, turn int) {
		if in.Pods = pods(); turn%2 == 1 {
			in.Pods = in.Pods[1:]
		}
	}},
}

// changedRule is the number of a cluster policy that denies names to every pod.
const changedRule = 40

// changePolicy gives one policy, which selects pods of the node, names and a port by whether
// two numbers are even.
func changePolicy(in *compile.Input, names, ports int) {
	port := int32(443)
	if ports%2 == 1 {
		port = 9443
	}
	first := *in.Policies[0]
	in.Policies[0] = &first
	first.Spec.Egress = []v1alpha1.EgressRule{rule([]int32{port}, fmt.Sprintf("turn-%d.example.org", names%2))}
}

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
