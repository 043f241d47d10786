package ordered

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of a policy of the kinds of ours with ordered rules, as in their schemas.
const (
	MaxRules    = 64 // of one direction
	MaxMatches  = 64 // of a rule
	MaxNetworks = 64 // of a rule
	MaxPorts    = 32 // of a rule
)

// ReadPriority reads spec.priority.
func (p *Policy) ReadPriority(written *int32) {
	switch {
	case written == nil:
		p.Invalid("spec.priority", "the priority is missing; write 0 to %d", MaxPriority)
	case *written < 0 || *written > MaxPriority:
		p.Invalid("spec.priority", "%d; write 0 to %d", *written, MaxPriority)
	default:
		p.Priority = *written
	}
}

// ReadSelector reads a selector of the subject, which must be written.
func (p *Policy) ReadSelector(path string, from *metav1.LabelSelector) *peers.Selector {
	if from == nil {
		p.Invalid(path, "the selector is missing; write one, or {} for all")
		return nil
	}
	s, err := peers.NewSelector(from)
	if err != nil {
		p.Invalid(path, "%v", err)
		return nil
	}
	return s
}

// ReadSettings reads what is neither place nor subject nor rule.
func (p *Policy) ReadSettings(e v1alpha1.Enforcement, d v1alpha1.Denied, dns *v1alpha1.ClusterDNS, ttl *v1alpha1.TTL) {
	report := fields.Report(p.Partly)
	p.Audit = report.Audit(e)
	p.Denied = report.Denied(d)
	p.DNSDenied = report.Reply("spec.dns.denied", dns.Denied, v1alpha1.UnmatchedNXDomain)
	p.Unmatched = report.Reply("spec.dns.unmatched", dns.Unmatched, v1alpha1.UnmatchedResolve)
	p.Limits = report.Limits(&dns.DNSLimits)
	p.Limits.NoEncrypted = report.DeniesEncrypted(dns.Encrypted)
	p.TTL = report.TTL(ttl)
}

// AddEncrypted adds the rule that denies DNS over TLS and QUIC.
func (p *Policy) AddEncrypted() {
	p.Add(policy.Rule{Path: fields.EncryptedPath, Action: policy.Deny, Ports: fields.EncryptedPorts}, &Destinations{Destinations: peers.Destinations{Anywhere: true}})
}

// ReadRules calls read with the path of each of n rules of a field of spec. The rules beyond the bound
// are one broken rule like rest: a Deny may be among them.
func (p *Policy) ReadRules(rest policy.Rule, n int, read func(path string, i int)) {
	for i := range min(n, MaxRules) {
		read(fmt.Sprintf("%s[%d]", rest.Path, i), i)
	}
	if n > MaxRules {
		p.Partly(rest.Path, "%d rules; write at most %d and put the rest into another policy; until then the policy denies every connection that its first %d rules do not match",
			n, MaxRules, MaxRules)
		p.AddBroken(rest)
	}
}

// RuleReader reads the parts of one rule. A problem breaks the rule.
type RuleReader struct {
	*Policy
	policy.Rule
	to     Destinations
	broken bool
}

// Fail reports a part of the rule that cannot be read. The action must be set.
func (r *RuleReader) Fail(path, format string, args ...any) {
	until := "; until then the rule denies every connection"
	if r.Action == policy.Accept {
		until = "; until then the rule matches nothing"
	}
	r.broken = true
	r.Partly(path, "%s", fmt.Sprintf(format, args...)+until)
}

// ReadCommon reads what rules of all kinds have.
func (r *RuleReader) ReadCommon(name, unreadable string, ports []v1alpha1.Port) {
	r.Name = r.RuleName(r.Path+".name", name)
	if unreadable != "" {
		r.Fail(r.Path, "%s", unreadable)
	}
	r.Ports = fields.Ports(r.Fail, r.Path+".ports", ports, MaxPorts)
}

// ReadMatches reads names and patterns.
func (r *RuleReader) ReadMatches(matches []v1alpha1.Match) {
	path := r.Path + ".matches"
	if len(matches) > MaxMatches {
		r.Fail(path, "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		return
	}
	for i := range matches {
		at := fmt.Sprintf("%s[%d]", path, i)
		if pattern, ok := fields.Report(r.Fail).Match(at, &matches[i]); ok {
			r.to.Names = append(r.to.Names, Name{Path: at, Pattern: pattern})
		}
	}
}

// ReadNetworks reads networks.
func (r *RuleReader) ReadNetworks(networks []v1alpha1.Network) {
	path := r.Path + ".networks"
	if len(networks) > MaxNetworks {
		r.Fail(path, "%d networks; write at most %d and put the rest into another rule", len(networks), MaxNetworks)
		return
	}
	for i, text := range networks {
		if p, ok := fields.Report(r.Fail).Network(fmt.Sprintf("%s[%d]", path, i), string(text)); ok {
			r.to.AddNetwork(p, nil)
		}
	}
}

// ReadNodes reads a selector of nodes, nil for none.
func (r *RuleReader) ReadNodes(from *metav1.LabelSelector) {
	if from == nil {
		return
	}
	if nodes, err := peers.NewSelector(from); err != nil {
		r.Fail(r.Path+".nodes", "%v", err)
	} else {
		r.to.AddNodes(nodes)
	}
}

// ReadPods reads selectors of pods, nil for none.
func (r *RuleReader) ReadPods(from *v1alpha1.PodSubject) {
	if from == nil {
		return
	}
	read := func(field string, from *metav1.LabelSelector) *peers.Selector {
		if from == nil {
			r.Fail(r.Path+".pods"+field, "the selector is missing; write one, or {} for all")
			return nil
		}
		s, err := peers.NewSelector(from)
		if err != nil {
			r.Fail(r.Path+".pods"+field, "%v", err)
		}
		return s
	}
	namespaces, pods := read(".namespaceSelector", from.NamespaceSelector), read(".podSelector", from.PodSelector)
	if namespaces != nil && pods != nil {
		r.to.AddPodsOf(namespaces, pods)
	}
}

// Done adds the rule to the policy, for every address where it has no peers.
func (r *RuleReader) Done(anywhere bool) {
	r.to.Anywhere = anywhere
	r.to.Normalize(MaxNetworks)
	if r.broken {
		r.AddBroken(r.Rule)
	} else {
		r.Add(r.Rule, &r.to)
	}
}
