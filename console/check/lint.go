package check

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// Options are the context that manifests do not contain.
type Options struct {
	// ClusterDomain is what names of the cluster end in, "cluster.local".
	ClusterDomain string
	// EnforceNetworkPolicies as compile.Input has it.
	EnforceNetworkPolicies bool
	// From are the sources of questions: ReadCluster reads what they need.
	From []explain.From
	// Log, unless nil, has what pods queried: names that nothing resolved, and shared addresses.
	Log *Log
}

// linter is one check of manifests.
type linter struct {
	*Manifests
	Options
	findings []Finding
	denied   *fqdn.Matcher[*policy.Match] // of rules of cluster policies with Deny
	named    map[fqdn.Name]bool           // the names in cluster policies: somebody thought of them
	spaces   map[string][]fqdn.Pattern    // of policies, by namespace
	behind   map[string][]*Service        // by namespace
	dials    netpolicyfor.Services
}

// warn adds a finding about a policy, none without a message.
func (l *linter) warn(p *Policy, reason, path, message string) {
	if message != "" {
		l.findings = append(l.findings, p.finding(Warning, reason, path, message))
	}
}

// Lint returns the findings about the manifests, in the order of files and lines.
func (m *Manifests) Lint(o Options) []Finding {
	l := m.linter(o)
	for _, p := range m.Policies {
		for _, problem := range p.Problems {
			l.findings = append(l.findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
		}
		l.names(p)
		l.services(p)
		l.anotherEngine(p)
		l.warn(p, SelectsNothing, p.subject(), m.selectsNothing(p))
		l.warn(p, NoSafeguard, "spec", p.noSafeguard())
	}
	l.denyLists()
	l.ties()
	l.externalIPs()
	l.permissive()
	l.serverNames()
	l.together()
	m.byLog = nil
	findings := l.findings
	if o.Log != nil {
		var some []Finding
		some, m.byLog = o.Log.findings()
		findings = append(findings, some...)
	}
	ordinary := func(p *Policy) bool { return p.network != nil && p.place.file != "" }
	if findings = m.asked(findings); len(findings) == 0 && m.policies(false)+m.policies(true) == 0 && !slices.ContainsFunc(m.Policies, ordinary) {
		where := fmt.Sprintf("%s; is this the right path?", console.Plural(len(m.Files), "file"))
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

func (m *Manifests) linter(o Options) *linter {
	l := &linter{Manifests: m, Options: o, findings: slices.Clone(m.findings), named: map[fqdn.Name]bool{}, spaces: map[string][]fqdn.Pattern{}, behind: map[string][]*Service{}, dials: m.dialledServices(o)}
	for i := range m.Services {
		s := &m.Services[i]
		l.behind[s.Ref.Namespace] = append(l.behind[s.Ref.Namespace], s)
	}
	var denied []*policy.Match
	for _, p := range m.Policies {
		for _, w := range p.matches {
			if p.own != nil {
				l.spaces[p.namespace] = append(l.spaces[p.namespace], w.pattern)
			}
		}
		for _, r := range p.Rules {
			if r.Action == policy.Deny {
				denied = append(denied, r.Matches...)
			}
			for _, match := range r.Matches {
				if n, exact := match.Pattern.Exact(); exact && p.ofCluster() {
					l.named[n] = true
				}
			}
		}
	}
	slices.SortFunc(denied, (*policy.Match).Compare)
	l.denied = policy.NewMatcher(denied)
	return l
}

// noSafeguard says that a policy for nodes may lock their administrators out.
func (p *Policy) noSafeguard() string {
	denies := func(r ordered.Rule) bool { return r.Action == policy.Deny }
	if p.ofNodes == nil || p.ofNodes.Spec.Safeguard != nil || p.Audit || !slices.ContainsFunc(p.Rules, denies) {
		return ""
	}
	return "the policy denies connections of nodes, and of their pods on the host network, until it is changed or deleted, also where that locks " +
		"administrators out; apply it with enforcement: Audit first, then enforce it with safeguard: {confirmWithin: 5m}"
}

// policies counts the policies that are checked: of namespaces, or of the whole cluster.
func (m *Manifests) policies(ofCluster bool) (n int) {
	for _, p := range m.Policies {
		if p.network == nil && p.ofCluster() == ofCluster && (len(m.Files) == 0 || p.place.file != "") && (!ofCluster || m.cluster == nil || m.cluster.namespaces == nil) {
			n++
		}
	}
	return n
}

// together finds what policies cannot do together, or for a pod that they select.
func (l *linter) together() {
	in := l.input(l.Options)
	in.Pods = unlike(in.Pods)
	for _, p := range l.Policies {
		if p.own != nil && len(l.Pods) == 0 {
			in.Pods = append(in.Pods, policy.Pod{
				PodRef: policy.PodRef{Namespace: p.namespace, Name: "with the labels of " + p.own.Name}, Labels: p.own.Spec.PodSelector.MatchLabels,
			})
		}
	}
	alone := map[string]bool{}
	for _, p := range l.Policies {
		for _, problem := range p.Problems {
			alone[problem.Object+problem.Path+problem.Message] = true
		}
	}
	ofPods := map[[2]string]int{} // by policy and reason: the finding, of whose pods the first is named
	others := map[int]int{}
	for _, problem := range compile.New().Compile(in).Problems {
		if alone[problem.Object+problem.Path+problem.Message] {
			continue
		}
		for _, p := range l.Policies {
			key := [2]string{p.ID, problem.Reason}
			at, known := ofPods[key]
			switch {
			case problem.Object == p.Object:
				l.findings = append(l.findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
			case p.own == nil || !slices.Contains(problem.Policies, p.ID):
			case known:
				others[at]++
			default:
				ofPods[key] = len(l.findings)
				l.warn(p, problem.Reason, p.subject(), problem.Object+": "+problem.Message)
			}
		}
	}
	for at, n := range others {
		l.findings[at].Message += fmt.Sprintf(" (the same holds for %s)", console.Plural(n, "other pod"))
	}
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
func (m *Manifests) input(o Options) compile.Input {
	// Agents may or may not enforce policies for nodes; the manifests are checked as if they did.
	in := compile.Input{Node: &policy.Node{Name: "any", Interfaces: []string{"any"}}, Pods: make([]policy.Pod, len(m.Pods)), Namespaces: m.Namespaces, EnforceNetworkPolicies: o.EnforceNetworkPolicies}
	for i := range m.Pods {
		in.Pods[i] = m.Pods[i].Pod
	}
	for _, p := range m.Policies {
		switch {
		case p.own != nil:
			in.Policies = append(in.Policies, p.own)
		case p.ours != nil:
			in.ClusterPolicies = append(in.ClusterPolicies, p.ours)
		case p.ofNodes != nil:
			in.NodePolicies = append(in.NodePolicies, p.ofNodes)
		case p.standard != nil:
			in.ClusterNetworkPolicies = append(in.ClusterNetworkPolicies, p.standard)
		default:
			in.NetworkPolicies = append(in.NetworkPolicies, p.network)
		}
	}
	return in
}
