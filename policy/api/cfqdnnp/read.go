package cfqdnnp

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of a policy, as in the schema of its kind.
const (
	MaxPriority = ordered.MaxPriority
	MaxRules    = 64
	MaxMatches  = 64
	MaxNetworks = 64
	MaxPorts    = 32
)

// Policy is one ClusterFQDNNetworkPolicy as it was read. It is immutable.
type Policy struct {
	ordered.Policy // its ID is its name
}

// Object returns the name by which problems name a policy.
func Object(name string) string { return "clusterpolicy " + name }

// Validate returns what in a policy cannot work as it is written, each with its path and
// with what to write instead; nil if all of it works. These are the checks of the schema,
// for policies that no API server has seen.
func Validate(p *v1alpha1.ClusterFQDNNetworkPolicy) []policy.Problem { return Read(p).Problems }

// NodesDisabled returns the problem of a policy for nodes where the agents do not enforce such
// policies; nil for any other policy.
func NodesDisabled(p *v1alpha1.ClusterFQDNNetworkPolicy) []policy.Problem {
	if p.Spec.Subject.Nodes == nil {
		return nil
	}
	r := Read(p)
	r.Problems = nil
	r.Invalid("spec.subject.nodes", "the agents do not enforce policies for nodes; install the chart with nodes.enabled=true, or write pods or namespaces")
	r.Invalidate()
	return r.Problems
}

// Read reads a policy. One whose place or subject cannot be read selects nothing.
func Read(p *v1alpha1.ClusterFQDNNetworkPolicy) *Policy {
	r := &Policy{Policy: ordered.Policy{ID: p.Name, Object: Object(p.Name)}}
	r.place(&p.Spec)
	r.subject(&p.Spec.Subject)
	r.settings(&p.Spec)
	rules := p.Spec.Egress
	if len(rules) > MaxRules {
		// The rest is one broken rule: a Deny may be among them.
		r.Partly("spec.egress", "%d rules; write at most %d and put the rest into another policy; until then the policy denies every connection that its first %d rules do not match",
			len(rules), MaxRules, MaxRules)
		rules = rules[:MaxRules]
	}
	if r.Limits.NoEncrypted {
		r.Add(policy.Rule{Path: fields.EncryptedPath, Action: policy.Deny, Ports: fields.EncryptedPorts}, anywhere())
	}
	for i := range rules {
		r.rule(fmt.Sprintf("spec.egress[%d]", i), &rules[i])
	}
	if len(p.Spec.Egress) > MaxRules {
		r.AddBroken(policy.Rule{Path: "spec.egress", Action: policy.Deny})
	}
	r.Invalidate()
	return r
}

// place reads where in the order the policy stands.
func (r *Policy) place(spec *v1alpha1.ClusterFQDNNetworkPolicySpec) {
	switch spec.Tier {
	case v1alpha1.TierAdmin:
		r.Tier = policy.Admin
	case v1alpha1.TierBaseline:
		r.Tier = policy.Baseline
	default:
		r.Invalid("spec.tier", "%q is no tier; write Admin or Baseline", spec.Tier)
	}
	switch {
	case spec.Priority == nil:
		r.Invalid("spec.priority", "the priority is missing; write 0 to %d", MaxPriority)
	case *spec.Priority < 0 || *spec.Priority > MaxPriority:
		r.Invalid("spec.priority", "%d; write 0 to %d", *spec.Priority, MaxPriority)
	default:
		r.Priority = *spec.Priority
	}
}

// subject reads whom the policy selects.
func (r *Policy) subject(s *v1alpha1.ClusterSubject) {
	const path = "spec.subject"
	switch written := []bool{s.Pods != nil, s.Namespaces != nil, s.Nodes != nil}; {
	case s.Unreadable != "":
		r.Invalid(path, "the subject cannot be read by this version: %s", s.Unreadable)
	case count(written) != 1:
		r.Invalid(path, "write exactly one of pods, namespaces and nodes; namespaces: {} selects every pod")
	case s.Nodes != nil:
		r.Nodes = r.selector(path+".nodes", s.Nodes)
	case s.Namespaces != nil:
		r.Namespaces = r.selector(path+".namespaces", s.Namespaces)
		r.Pods = r.selector(path, &metav1.LabelSelector{})
	default:
		r.Namespaces = r.selector(path+".pods.namespaceSelector", s.Pods.NamespaceSelector)
		r.Pods = r.selector(path+".pods.podSelector", s.Pods.PodSelector)
	}
}

func count(written []bool) (n int) {
	for _, w := range written {
		if w {
			n++
		}
	}
	return n
}

func (r *Policy) selector(path string, from *metav1.LabelSelector) *peers.Selector {
	if from == nil {
		r.Invalid(path, "the selector is missing; write one, or {} for all")
		return nil
	}
	s, err := peers.NewSelector(from)
	if err != nil {
		r.Invalid(path, "%v", err)
		return nil
	}
	return s
}

// settings reads what is neither place nor subject nor rule.
func (r *Policy) settings(spec *v1alpha1.ClusterFQDNNetworkPolicySpec) {
	report := fields.Report(r.Partly)
	r.Audit = report.Audit(spec.Enforcement)
	r.Denied = report.Denied(spec.Denied)
	r.DNSDenied = report.Reply("spec.dns.denied", spec.DNS.Denied, v1alpha1.UnmatchedNXDomain)
	r.Unmatched = report.Reply("spec.dns.unmatched", spec.DNS.Unmatched, v1alpha1.UnmatchedResolve)
	r.Limits = report.Limits(&spec.DNS.DNSLimits)
	r.Limits.NoEncrypted = report.DeniesEncrypted(spec.DNS.Encrypted)
	r.TTL = report.TTL(&spec.TTL)
	r.safeguard(spec)
}
