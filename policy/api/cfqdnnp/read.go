package cfqdnnp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
)

// The bounds of a policy, as in the schema of its kind.
const (
	MaxPriority = ordered.MaxPriority
	MaxRules    = ordered.MaxRules
	MaxMatches  = ordered.MaxMatches
	MaxNetworks = ordered.MaxNetworks
	MaxPorts    = ordered.MaxPorts
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

// Read reads a policy. One whose place or subject cannot be read selects nothing.
func Read(p *v1alpha1.ClusterFQDNNetworkPolicy) *Policy {
	r := &Policy{Policy: ordered.Policy{ID: p.Name, Object: Object(p.Name)}}
	r.place(&p.Spec)
	r.subject(&p.Spec.Subject)
	r.ReadSettings(p.Spec.Enforcement, p.Spec.Denied, &p.Spec.DNS, &p.Spec.TTL)
	if r.Limits.NoEncrypted {
		r.AddEncrypted()
	}
	r.ReadRules(policy.Rule{Path: "spec.egress", Action: policy.Deny}, len(p.Spec.Egress), func(path string, i int) { r.rule(path, &p.Spec.Egress[i]) })
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
	r.ReadPriority(spec.Priority)
}

// subject reads whom the policy selects.
func (r *Policy) subject(s *v1alpha1.ClusterSubject) {
	const path = "spec.subject"
	switch {
	case s.Unreadable != "":
		r.Invalid(path, "the subject cannot be read by this version: %s", s.Unreadable)
	case (s.Pods == nil) == (s.Namespaces == nil):
		r.Invalid(path, "write exactly one of pods and namespaces; namespaces: {} selects every pod")
	case s.Namespaces != nil:
		r.Namespaces = r.ReadSelector(path+".namespaces", s.Namespaces)
		r.Pods = r.ReadSelector(path, &metav1.LabelSelector{})
	default:
		r.Namespaces = r.ReadSelector(path+".pods.namespaceSelector", s.Pods.NamespaceSelector)
		r.Pods = r.ReadSelector(path+".pods.podSelector", s.Pods.PodSelector)
	}
}
