package main

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// maxPolicies is how many policies the cluster has whose policies are compiled.
const maxPolicies = 10_000

func clusterState(namespaces int) string {
	return fmt.Sprintf("%d policies, %d pods, %d namespaces", maxPolicies, maxPods, namespaces)
}

// groups is how many kinds of pods a namespace has; each policy is for one.
const groups = 5

// cluster is so many policies of a cluster and one node's pods, both spread evenly over
// namespaces; a pod is selected by each fifth policy of its namespace.
func cluster(policies, namespaces int) compile.Input {
	var in compile.Input
	for i := range policies {
		p := v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("ns-%d", i%namespaces), Name: fmt.Sprintf("policy-%05d", i),
		}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": group(i, namespaces)}
		p.Spec.Egress = []v1alpha1.EgressRule{
			rule([]int32{443}, fmt.Sprintf("api-%d.example.org", i), fmt.Sprintf("www-%d.example.org", i), "shared.example.org",
				fmt.Sprintf("*.zone-%d.example.org", i), fmt.Sprintf("w*-%d.cdn.test", i%100)),
			rule([]int32{443, int32(8000 + i%portSets)}, fmt.Sprintf("**.deep-%d.example.org", i%500)),
		}
		in.Policies = append(in.Policies, p)
	}
	for i := range maxPods {
		a4, a6 := podAddrs(i)
		p := policy.Pod{
			PodRef: policy.PodRef{Namespace: fmt.Sprintf("ns-%d", i%namespaces), Name: fmt.Sprintf("pod-%04d", i), UID: fmt.Sprint(i)},
			Labels: map[string]string{"app": group(i, namespaces), "hash": fmt.Sprint(i)},
		}
		p.IPs = append(p.IPs, a4, a6)
		in.Pods = append(in.Pods, p)
	}
	return in
}

func group(i, namespaces int) string { return fmt.Sprintf("app-%d", i/namespaces%groups) }

// rule allows names, or patterns where they have a star, on ports of TCP.
func rule(ports []int32, names ...string) v1alpha1.EgressRule {
	var r v1alpha1.EgressRule
	for _, n := range names {
		if strings.Contains(n, "*") {
			r.Matches = append(r.Matches, v1alpha1.Match{Pattern: &n})
		} else {
			r.Matches = append(r.Matches, v1alpha1.Match{Name: &n})
		}
	}
	tcp := v1alpha1.ProtocolTCP
	for _, port := range ports {
		r.Ports = append(r.Ports, v1alpha1.Port{Protocol: &tcp, Port: &port})
	}
	return r
}

// changed returns the cluster with other names, and with ports other ports too, in
// one policy; which ones depends on whether turn is even.
func changed(in compile.Input, turn int, ports bool) compile.Input {
	port := int32(443)
	if ports && turn%2 == 1 {
		port = 9443
	}
	in.Policies[changedPolicy].Spec.Egress = []v1alpha1.EgressRule{rule([]int32{port}, fmt.Sprintf("turn-%d.example.org", turn%2))}
	return in
}

// changedPolicy is one that selects pods of the node.
const changedPolicy = 0
