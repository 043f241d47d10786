package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/peers"
)

type rule = ordered.Rule

// sample is a made-up pod under the cluster policies of the manifests alone.
type sample struct {
	view *policy.View
	in   *policy.Snapshot
}

// samples returns the views of made-up pods with labels, in namespaces with labels.
func (l *linter) samples(namespaces, pods []map[string]string) []sample {
	in := l.input(l.Options)
	in.Policies, in.NetworkPolicies, in.Pods, in.Namespaces = nil, nil, nil, map[string]map[string]string{}
	for i := range pods {
		name := strconv.Itoa(i)
		in.Namespaces[name] = namespaces[i]
		in.Pods = append(in.Pods, policy.Pod{PodRef: policy.PodRef{Namespace: name, Name: name}, Labels: pods[i]})
	}
	snap := compile.New().Compile(in)
	out := make([]sample, len(pods))
	for i := range pods {
		out[i] = sample{snap.ViewOf(in.Pods[i].PodRef), snap}
	}
	return out
}

// evaluate tells whether the pod may reach an address, and by which rule.
func (s sample) evaluate(to netip.AddrPort, p policy.Protocol, would bool) (allows bool, by *policy.Rule) {
	f := policy.Flow{Protocol: p, Dialled: to, Reached: to, Would: would}
	return policy.Evaluate(s.view, s.in, &f)
}

// denyLists finds what is misleading in each cluster policy that selects pods.
func (l *linter) denyLists() {
	var policies []*Policy
	var namespaces, pods []map[string]string
	for _, p := range l.Policies {
		if !p.ofCluster() || p.Pods == nil {
			continue
		}
		namespace, some := peers.Sample(p.Namespaces)
		pod, any := peers.Sample(p.Pods)
		if some && any {
			policies, namespaces, pods = append(policies, p), append(namespaces, namespace), append(pods, pod)
		}
	}
	samples := l.samples(namespaces, pods)
	for i, p := range policies {
		l.denyList(p, samples[i])
	}
	l.resolvers(policies)
}

// resolverLabels are the labels of the pods that are the cluster's resolver. Sources:
// https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/ and
// https://github.com/coredns/helm.
var resolverLabels = []labels.Set{{"k8s-app": "kube-dns"}, {"app.kubernetes.io/name": "coredns"}}

// isResolver tells whether the pod is one of the cluster's resolver.
func (p *Pod) isResolver() bool {
	return slices.ContainsFunc(resolverLabels, func(l labels.Set) bool { return l.AsSelector().Matches(labels.Set(p.Labels)) })
}

// resolvers finds policies that select the cluster's own resolver and deny its queries to
// resolvers outside.
func (l *linter) resolvers(policies []*Policy) {
	var names []string
	var namespaces, pods []map[string]string
	add := func(namespace, labels map[string]string, of string) {
		names, namespaces, pods = append(names, of), append(namespaces, namespace), append(pods, labels)
	}
	system := l.namespaceLabels("kube-system")
	for _, resolver := range resolverLabels {
		add(system, resolver, "the pods of kube-system with "+resolver.String())
		for _, p := range l.Pods {
			if !p.HostNetwork && p.Namespace != "kube-system" && resolver.AsSelector().Matches(labels.Set(p.Labels)) {
				add(l.namespaceLabels(p.Namespace), p.Labels, p.name())
			}
		}
	}
	samples := l.samples(namespaces, pods)
	for _, p := range policies {
		for i, s := range samples {
			if by := p.deniesUpstream(s); by != nil {
				l.warn(p, SelectsResolver, p.subject(), fmt.Sprintf("selects the resolver of the cluster (%s), and %s denies its queries to other resolvers: then pods resolve no name outside the cluster; "+
					"leave it out of the subject, such as by matchExpressions: [{key: %s, operator: NotIn, values: [%s]}] for namespaces",
					names[i], by.Path, corev1.LabelMetadataName, namespaces[i][corev1.LabelMetadataName]))
				break
			}
		}
	}
}

// deniesUpstream returns the rule of the policy that keeps a resolver from others, nil for none.
func (p *Policy) deniesUpstream(s sample) (by *policy.Rule) {
	for _, a := range anyResolvers {
		if !a.Is4() {
			continue // the resolver asks by the other family
		}
		allows, r := s.evaluate(netip.AddrPortFrom(a, 53), policy.UDP, p.Audit)
		if allows || r == nil || r.Policy != p.ID || r.Broken {
			return nil
		}
		by = r
	}
	return by
}

// namespaceLabels returns the labels of a namespace: its name alone if the manifests do not
// have it.
func (m *Manifests) namespaceLabels(name string) map[string]string {
	if labels, known := m.Namespaces[name]; known {
		return labels
	}
	return map[string]string{corev1.LabelMetadataName: name}
}
