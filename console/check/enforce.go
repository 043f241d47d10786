package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
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
		out = append(out, console.Safe(fmt.Sprintf("%s enforced: %s to %s: %s, today %s: %s", t.Policy, c.Pod, c.To, c.Verdict, today, c.Message)))
	}
	out = append(out, console.Safe(fmt.Sprintf("%s enforced: %s, %s compared: %d denied that pass today, %d allowed that are denied today",
		t.Policy, console.Plural(t.Pods, "pod"), console.Plural(t.Connections, "connection"), t.Denied(), len(t.Changes)-t.Denied())))
	return out
}

// Enforce compares today with the day on which one Audit policy enforces: "namespace/name", or
// "name" of a ClusterFQDNNetworkPolicy. Without pods those of the manifests are asked about, or
// a made-up one; without questions the names of the pods' policies, and one that no policy
// names. The error says which policies can be tried.
func (m *Manifests) Enforce(id string, pods []Pod, questions []explain.Target, o Options) (*Trial, error) {
	then := *m
	p, sample, err := then.enforced(id)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		pods = m.Pods
	}
	if len(pods) == 0 {
		pods = []Pod{sample}
	}
	t := &Trial{Policy: id}
	before, after := m.snapshot(o, pods...), then.snapshot(o, pods...)
	for i := range pods {
		pod := &pods[i]
		if pod.HostNetwork || !m.selects(p, pod) {
			continue
		}
		t.Pods++
		asked := questions
		if len(asked) == 0 {
			asked = questionsOf(before, after, pod.PodRef)
		}
		for _, q := range asked {
			a, b := m.ask(pod, q, o, before), then.ask(pod, q, o, after)
			t.Connections++
			if a.passes() != b.passes() {
				t.Changes = append(t.Changes, Change{Pod: b.Pod, To: b.To, Verdict: b.Verdict, Message: b.Reason})
			}
		}
	}
	return t, nil
}

// enforced makes one Audit policy of m enforce, in a copy of it. It returns the policy, and a
// pod that it selects.
func (m *Manifests) enforced(id string) (*Policy, Pod, error) {
	kind := "policy"
	if policy.OfCluster(id) {
		kind = "cluster policy"
	}
	i := slices.IndexFunc(m.Policies, func(p *Policy) bool { return p.network == nil && p.ofNodes == nil && p.ID == id })
	switch {
	case i < 0:
		return nil, Pod{}, m.notAudit("there is no %s %s in %s", kind, id, m.source())
	case !m.Policies[i].Audit:
		return nil, Pod{}, m.notAudit("the %s %s is not an Audit policy", kind, id)
	}
	p := *m.Policies[i]
	if m.Policies = slices.Clone(m.Policies); p.own != nil {
		p.own = p.own.DeepCopy()
		p.own.Spec.Enforcement = v1alpha1.EnforcementEnforce
	} else {
		p.ours = p.ours.DeepCopy()
		p.ours.Spec.Enforcement = v1alpha1.EnforcementEnforce
	}
	if m.Policies[i] = &p; p.Pods == nil {
		return &p, Pod{}, nil
	}
	namespace := p.namespace
	if p.ofCluster() {
		labels, _ := peers.Sample(p.Namespaces)
		namespace = cmp.Or(labels[corev1.LabelMetadataName], "any")
		if _, known := m.Namespaces[namespace]; !known {
			m.Namespaces[namespace] = labels // in both: the compared manifests share the map
		}
	}
	labels, _ := peers.Sample(p.Pods)
	return &p, madeUp(namespace, labels), nil
}

// notAudit returns an error with the policies that can be tried.
func (m *Manifests) notAudit(format string, args ...any) error {
	var ids []string
	for _, ofCluster := range []bool{false, true} {
		for _, p := range m.Policies {
			if p.Audit && p.ofNodes == nil && p.ofCluster() == ofCluster {
				ids = append(ids, p.ID)
			}
		}
	}
	which := "no policy of the manifests is"
	if m.cluster != nil {
		which = "no policy of " + m.scope() + " is"
	}
	if len(ids) > 0 {
		which = "write one of " + console.Listed(ids, 8)
	}
	return fmt.Errorf("%s; %s", fmt.Sprintf(format, args...), which)
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
