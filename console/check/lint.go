package check

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
)

// Options are the context that manifests do not contain.
type Options struct {
	// ClusterDomain is what names of the cluster end in, "cluster.local".
	ClusterDomain string
	// Log, unless nil, has what pods queried: names that nothing resolved, and shared addresses.
	Log *Log
	// Upgrade finds what has another meaning than in the previous release.
	Upgrade bool
}

// Lint returns the findings about the manifests, in the order of files and lines.
func (m *Manifests) Lint(o Options) []Finding {
	findings := slices.Clone(m.findings)
	for i := range m.Policies {
		p := &m.Policies[i]
		for _, problem := range fqdnnp.Validate(&p.FQDNNetworkPolicy) {
			findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
		}
		findings = append(findings, m.matches(p, o)...)
		if o.Upgrade {
			findings = append(findings, p.barePorts()...)
		}
	}
	findings = append(findings, m.clusterPolicies(o)...)
	findings = append(findings, m.selectsNothing()...)
	findings = append(findings, m.servicePorts(o)...)
	findings = append(findings, m.together()...)
	if o.Log != nil {
		findings = append(findings, o.Log.findings()...)
	}
	if len(m.Policies) == 0 && len(m.ClusterPolicies) == 0 && len(findings) == 0 {
		findings = append(findings, Finding{
			Severity: Warning, Reason: NoPolicy,
			Message: fmt.Sprintf("no %s of %s in %s; is this the right path?", v1alpha1.Kind, v1alpha1.GroupVersion(), plural(len(m.Files), "file")),
		})
	}
	sortFindings(findings, m.Files)
	return findings
}

// barePorts finds the ports whose meaning the upgrade changes.
func (p *Policy) barePorts() (findings []Finding) {
	for _, bare := range fqdnnp.BarePorts(&p.Spec) {
		findings = append(findings, p.finding(Warning, fqdnnp.ReasonPortWithoutProtocol, bare.Path, fmt.Sprintf(
			"port %s has no protocol: it is open for TCP, UDP and SCTP, where earlier releases opened it for TCP alone; write protocol: TCP, or protocol: ALL if that is meant", bare.Ports)))
	}
	return findings
}

// together finds what policies cannot do together, or for a pod that they select.
func (m *Manifests) together() []Finding {
	in := m.input()
	if len(in.Pods) == 0 {
		for i := range m.Policies {
			p := &m.Policies[i]
			in.Pods = append(in.Pods, policy.Pod{
				PodRef: policy.PodRef{Namespace: p.Namespace, Name: "with the labels of " + p.Name}, Labels: p.Spec.PodSelector.MatchLabels,
			})
		}
	}
	alone := map[string]bool{}
	for i := range in.Policies {
		for _, problem := range fqdnnp.Validate(&in.Policies[i]) {
			alone[problem.Object+problem.Path+problem.Message] = true
		}
	}
	for _, p := range m.ClusterPolicies {
		for _, problem := range p.Problems {
			alone[problem.Object+problem.Path+problem.Message] = true
		}
	}
	var findings []Finding
	for _, problem := range compile.New().Compile(in).Problems {
		if alone[problem.Object+problem.Path+problem.Message] {
			continue
		}
		for i := range m.NetworkPolicies {
			if n := &m.NetworkPolicies[i]; problem.Object == "networkpolicy "+n.id() {
				findings = append(findings, n.finding(problem.Reason, problem.Path, problem.Message))
			}
		}
		for i := range m.ClusterPolicies {
			if p := &m.ClusterPolicies[i]; problem.Object == p.Object {
				findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
			}
		}
		for i := range m.Policies {
			p := &m.Policies[i]
			switch {
			case problem.Object == "policy "+p.id():
				findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
			case slices.Contains(problem.Policies, p.id()):
				findings = append(findings, p.finding(Warning, problem.Reason, "spec.podSelector", problem.Object+": "+problem.Message))
			}
		}
	}
	return findings
}

// input returns the compiler's input from the manifests.
func (m *Manifests) input() compile.Input {
	// Agents may or may not enforce policies for nodes; the manifests are checked as if they did.
	in := compile.Input{Node: &policy.Node{Name: "any"}, Policies: make([]v1alpha1.FQDNNetworkPolicy, len(m.Policies)), Pods: make([]policy.Pod, len(m.Pods)), Namespaces: m.Namespaces}
	for i := range m.Policies {
		in.Policies[i] = m.Policies[i].FQDNNetworkPolicy
	}
	for i := range m.Pods {
		in.Pods[i] = m.Pods[i].Pod
	}
	for i := range m.NetworkPolicies {
		in.NetworkPolicies = append(in.NetworkPolicies, m.NetworkPolicies[i].NetworkPolicy)
	}
	for _, p := range m.ClusterPolicies {
		if p.ours != nil {
			in.ClusterPolicies = append(in.ClusterPolicies, p.ours)
		} else {
			in.ClusterNetworkPolicies = append(in.ClusterNetworkPolicies, p.standard)
		}
	}
	return in
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what[len(what)-1] == 'y':
		what = what[:len(what)-1] + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
