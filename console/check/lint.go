package check

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

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
	}
	findings = append(findings, m.clusterPolicies(o)...)
	findings = append(findings, m.selectsNothing()...)
	findings = append(findings, m.servicePorts(o)...)
	findings = append(findings, m.externalIPs()...)
	findings = append(findings, m.permissive()...)
	findings = append(findings, m.anotherEngine(o)...)
	findings = append(findings, m.together()...)
	m.byLog = nil
	if o.Log != nil {
		var some []Finding
		some, m.byLog = o.Log.findings()
		findings = append(findings, some...)
	}
	if findings = m.asked(findings); len(findings) == 0 && m.policies(false)+m.policies(true) == 0 && !m.ordinary() {
		where := fmt.Sprintf("%s; is this the right path?", plural(len(m.Files), "file"))
		if m.cluster != nil && len(m.Files) == 0 {
			where = m.scope() + "; --namespace names another namespace, --all-namespaces all"
		}
		findings = append(findings, Finding{
			Severity: Warning, Reason: NoPolicy, Message: fmt.Sprintf("no %s of %s in %s", v1alpha1.Kind, v1alpha1.GroupVersion(), where),
		})
	}
	sortFindings(findings, m.Files)
	return findings
}

// ordinary tells whether there are NetworkPolicies to check in the files.
func (m *Manifests) ordinary() bool {
	return slices.ContainsFunc(m.NetworkPolicies, func(n NetworkPolicy) bool { return n.place.file != "" })
}

// policies counts the policies that are checked: of namespaces, or of the whole cluster.
func (m *Manifests) policies(ofCluster bool) (n int) {
	count := func(p place) {
		if len(m.Files) == 0 || p.file != "" {
			n++
		}
	}
	for i := range m.Policies {
		if !ofCluster {
			count(m.Policies[i].place)
		}
	}
	for i := range m.ClusterPolicies {
		if ofCluster && (m.cluster == nil || m.cluster.namespaces == nil) {
			count(m.ClusterPolicies[i].place)
		}
	}
	return n
}

// together finds what policies cannot do together, or for a pod that they select.
func (m *Manifests) together() []Finding {
	in := m.input()
	in.Pods = unlike(in.Pods)
	if len(in.Pods) == 0 {
		for i := range m.Policies {
			p := &m.Policies[i]
			in.Pods = append(in.Pods, policy.Pod{
				PodRef: policy.PodRef{Namespace: p.Namespace, Name: "with the labels of " + p.Name}, Labels: p.Spec.PodSelector.MatchLabels,
			})
		}
	}
	alone := map[string]bool{}
	for _, p := range in.Policies {
		for _, problem := range fqdnnp.Validate(p) {
			alone[problem.Object+problem.Path+problem.Message] = true
		}
	}
	for _, p := range m.ClusterPolicies {
		for _, problem := range p.Problems {
			alone[problem.Object+problem.Path+problem.Message] = true
		}
	}
	var findings []Finding
	ofPods := map[[2]string]int{} // by policy and reason: the finding, of whose pods the first is named
	others := map[int]int{}
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
				key := [2]string{p.id(), problem.Reason}
				if at, known := ofPods[key]; known {
					others[at]++
					continue
				}
				ofPods[key] = len(findings)
				findings = append(findings, p.finding(Warning, problem.Reason, "spec.podSelector", problem.Object+": "+problem.Message))
			}
		}
	}
	for at, n := range others {
		findings[at].Message += fmt.Sprintf(" (the same holds for %s)", plural(n, "other pod"))
	}
	return findings
}

// unlike returns the pods without those that are like another one for every policy.
func unlike(pods []policy.Pod) (some []policy.Pod) {
	known := map[string]bool{}
	for _, p := range pods {
		key := fmt.Sprint(p.Namespace, p.HostNetwork, p.Finished(), p.UID, p.Ports, labels.Set(p.Labels))
		if !known[key] || p.HostNetwork { // findings count these
			known[key] = true
			some = append(some, p)
		}
	}
	return some
}

// input returns the compiler's input from the manifests.
func (m *Manifests) input() compile.Input {
	// Agents may or may not enforce policies for nodes; the manifests are checked as if they did.
	in := compile.Input{Node: &policy.Node{Name: "any"}, Policies: make([]*v1alpha1.FQDNNetworkPolicy, len(m.Policies)), Pods: make([]policy.Pod, len(m.Pods)), Namespaces: m.Namespaces}
	for i := range m.Policies {
		in.Policies[i] = &m.Policies[i].FQDNNetworkPolicy
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
