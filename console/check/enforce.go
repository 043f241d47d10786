package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// Trial is what changes if one Audit policy enforces.
type Trial struct {
	Policy string `json:"policy"` // "namespace/name"; of a cluster policy "name"
	Pods   int    `json:"pods"`   // that it selects, of those that were asked about
	// Connections counts those that were compared.
	Connections int      `json:"connections"`
	Changes     []Change `json:"changes,omitempty"`
}

// Change is a connection that passes today and is denied then, or the other way round.
type Change struct {
	Pod     string          `json:"pod"`
	To      string          `json:"to"`
	Verdict explain.Verdict `json:"verdict"` // then
	Message string          `json:"message"` // why
}

// Denied counts the connections that pass today and are denied then.
func (t *Trial) Denied() (n int) {
	for _, c := range t.Changes {
		if c.Verdict == explain.Denied {
			n++
		}
	}
	return n
}

// lines returns the trial for people.
func (t *Trial) lines() (out []string) {
	for _, c := range t.Changes {
		today := "denied"
		if c.Verdict == explain.Denied {
			today = "allowed"
		}
		out = append(out, plain(fmt.Sprintf("%s enforced: %s to %s: %s, today %s: %s", t.Policy, c.Pod, c.To, c.Verdict, today, c.Message)))
	}
	out = append(out, plain(fmt.Sprintf("%s enforced: %s, %s compared: %d denied that pass today, %d allowed that are denied today",
		t.Policy, plural(t.Pods, "pod"), plural(t.Connections, "connection"), t.Denied(), len(t.Changes)-t.Denied())))
	return out
}

// NotAudit says that a policy cannot be tried. The message says why, and what can be.
type NotAudit struct{ Message string }

// Error returns the message.
func (e *NotAudit) Error() string { return e.Message }

// Enforce compares today with the day on which one Audit policy enforces: "namespace/name", or
// "name" of a ClusterFQDNNetworkPolicy. Without pods those of the manifests are asked about, or
// a made-up one; without questions the names of the pods' policies, and one that no policy
// names. The error is a *NotAudit.
func (m *Manifests) Enforce(id string, pods []Pod, questions []explain.Target, o Options) (*Trial, error) {
	then := *m
	selects, err := then.enforced(id)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		pods = m.Pods
	}
	if len(pods) == 0 {
		pods = []Pod{selects.sample}
	}
	t := &Trial{Policy: id}
	before, after := m.snapshot(pods), then.snapshot(pods)
	for i := range pods {
		p := &pods[i]
		if p.HostNetwork || !selects.pod(p) {
			continue
		}
		t.Pods++
		asked := questions
		if len(asked) == 0 {
			asked = questionsOf(before, after, p.PodRef)
		}
		for _, q := range asked {
			a, b := m.ask(p, q, o, before), then.ask(p, q, o, after)
			t.Connections++
			if a.passes() != b.passes() {
				t.Changes = append(t.Changes, Change{Pod: b.Pod, To: b.To, Verdict: b.Verdict, Message: b.Reason})
			}
		}
	}
	return t, nil
}

// snapshot compiles the manifests for pods.
func (m *Manifests) snapshot(pods []Pod) *policy.Snapshot {
	in := m.input()
	in.Pods = nil
	for i := range pods {
		in.Pods = append(in.Pods, pods[i].Pod)
	}
	return compile.New().Compile(in)
}

// selecting is whom a policy selects.
type selecting struct {
	pod    func(*Pod) bool
	sample Pod // some pod that is
}

// enforced makes one Audit policy of m enforce, in a copy of it.
func (m *Manifests) enforced(id string) (selecting, error) {
	if policy.OfCluster(id) {
		return m.clusterEnforced(id)
	}
	i := slices.IndexFunc(m.Policies, func(p Policy) bool { return p.id() == id })
	switch {
	case i < 0:
		return selecting{}, m.notAudit("there is no policy %s in %s", id, m.source())
	case m.Policies[i].Spec.Enforcement != v1alpha1.EnforcementAudit:
		return selecting{}, m.notAudit("the policy %s is not an Audit policy", id)
	}
	m.Policies = slices.Clone(m.Policies)
	p := &m.Policies[i]
	p.Spec.Enforcement = v1alpha1.EnforcementEnforce
	selector, err := peers.NewSelector(&p.Spec.PodSelector)
	if err != nil {
		return selecting{pod: func(*Pod) bool { return false }}, nil // Lint says so
	}
	sample, _ := peers.Sample(selector)
	return selecting{func(pod *Pod) bool { return pod.Namespace == p.Namespace && selector.Matches(pod.Labels) }, madeUp(p.Namespace, sample)}, nil
}

// clusterEnforced is enforced for a ClusterFQDNNetworkPolicy.
func (m *Manifests) clusterEnforced(id string) (selecting, error) {
	i := slices.IndexFunc(m.ClusterPolicies, func(p ClusterPolicy) bool { return p.ID == id })
	switch {
	case i < 0:
		return selecting{}, m.notAudit("there is no cluster policy %s in %s", id, m.source())
	case !m.ClusterPolicies[i].Audit:
		return selecting{}, m.notAudit("the cluster policy %s is not an Audit policy", id)
	}
	m.ClusterPolicies = slices.Clone(m.ClusterPolicies)
	p := &m.ClusterPolicies[i]
	p.ours = p.ours.DeepCopy()
	p.ours.Spec.Enforcement = v1alpha1.EnforcementEnforce
	of := selecting{pod: func(pod *Pod) bool { return p.Selects(m.namespaceLabels(pod.Namespace), pod.Labels) }}
	if p.Pods == nil {
		return of, nil
	}
	namespace, _ := peers.Sample(p.Namespaces)
	pod, _ := peers.Sample(p.Pods)
	name := cmp.Or(namespace[corev1.LabelMetadataName], "any")
	of.sample = madeUp(name, pod)
	if _, known := m.Namespaces[name]; !known {
		m.Namespaces[name] = namespace // in both: the compared manifests share the map
	}
	return of, nil
}

// notAudit returns a NotAudit with the policies that can be tried.
func (m *Manifests) notAudit(format string, args ...any) error {
	const most = 8
	var ids []string
	for i := range m.Policies {
		if p := &m.Policies[i]; p.Spec.Enforcement == v1alpha1.EnforcementAudit {
			ids = append(ids, p.id())
		}
	}
	for i := range m.ClusterPolicies {
		if p := &m.ClusterPolicies[i]; p.Audit {
			ids = append(ids, p.ID)
		}
	}
	which := "no policy of the manifests is"
	if m.cluster != nil {
		which = "no policy of " + m.scope() + " is"
	}
	if len(ids) > 0 {
		which = "write one of " + strings.Join(ids[:min(len(ids), most)], ", ")
	}
	return &NotAudit{fmt.Sprintf(format, args...) + "; " + which}
}

// otherName stands for all names that no policy names.
const otherName = "other.invalid"

// questionsOf returns the names that the policies of a pod name, a name for each pattern, and
// otherName; each on the ports of the rules that cover it, and on TCP 443.
func questionsOf(before, after *policy.Snapshot, pod policy.PodRef) (out []explain.Target) {
	other, _ := fqdn.ParseName(otherName)
	names := []fqdn.Name{other}
	for _, snap := range []*policy.Snapshot{before, after} {
		if v := snap.ViewOf(pod); v != nil {
			for r := range v.Rules.All() {
				for _, m := range r.Matches {
					text := strings.ReplaceAll(strings.ReplaceAll(m.Pattern.String(), "**", "any"), "*", "any")
					if n, err := fqdn.ParseName(text); err == nil && text != "any" {
						names = append(names, n)
					}
				}
			}
		}
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		ports := []policy.PortRange{{Protocol: policy.TCP, First: 443}}
		for _, snap := range []*policy.Snapshot{before, after} {
			if v := snap.ViewOf(pod); v != nil {
				f := policy.Flow{Would: true}
				f.Enter(policy.Decide(v, policy.Query{Name: n, Would: true}).Matches...)
				for _, s := range policy.Steps(v, snap, &f) {
					for _, r := range s.Ports.Ranges() {
						ports = append(ports, policy.PortRange{Protocol: r.Protocol, First: r.First})
					}
				}
			}
		}
		slices.SortFunc(ports, func(a, b policy.PortRange) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First))
		})
		for _, p := range slices.Compact(ports) {
			out = append(out, explain.Target{Name: n, Protocol: p.Protocol, Port: p.First})
		}
	}
	return out
}
