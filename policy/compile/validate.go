package compile

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// The bounds of a policy, as in the schema of its kind. Seconds are bounded far
// below the kernel's longest set timeout, 2147483 s (IPSET_MAX_TIMEOUT).
const (
	MaxRules        = 32
	MaxMatches      = 64
	MaxPorts        = 32
	MaxTTLSeconds   = 604800
	MaxGraceSeconds = 86400
)

// Validate returns what in a policy cannot work as it is written, each with its
// path and with what to write instead; nil if all of it works. These are the
// checks of the schema, for policies that no API server has seen.
func Validate(p *v1alpha1.FQDNNetworkPolicy) []policy.Problem {
	return parsePolicy(p, paths{}).problems
}

// parsed is one policy as the compiler keeps it. It is immutable.
type parsed struct {
	id        string // "namespace/name"
	spec      v1alpha1.FQDNNetworkPolicySpec
	selector  labels.Selector
	audit     bool
	denied    policy.Denied
	unmatched policy.Unmatched
	ttl       policy.TTL
	entries   []policy.Entry
	matches   []*policy.Match
	labels    int // of the patterns with a wildcard
	problems  []policy.Problem
	serial    uint64 // of the parse in its compiler
}

// paths holds the paths of rules and matches, which all policies share.
type paths map[[2]int]string

func (ps paths) rule(i int) string {
	return ps.once([2]int{i, -1}, func() string { return fmt.Sprintf("spec.egress[%d]", i) })
}

func (ps paths) match(i, j int) string {
	return ps.once([2]int{i, j}, func() string { return fmt.Sprintf("spec.egress[%d].matches[%d]", i, j) })
}

func (ps paths) once(key [2]int, path func() string) string {
	text, known := ps[key]
	if !known {
		text = path()
		ps[key] = text
	}
	return text
}

func parsePolicy(p *v1alpha1.FQDNNetworkPolicy, known paths) *parsed {
	r := &parsed{id: p.Namespace + "/" + p.Name, spec: p.Spec}
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		r.report(policy.ReasonInvalid, "spec.podSelector", "%v; the policy selects no pod until this is mended", err)
		selector = labels.Nothing()
	}
	r.selector = selector
	r.settings()
	rules := p.Spec.Egress
	if len(rules) > MaxRules {
		r.partly("spec.egress", "%d rules; write at most %d and put the rest into another policy", len(rules), MaxRules)
		rules = rules[:MaxRules]
	}
	for i := range rules {
		r.rule(known, i, &rules[i])
	}
	r.labels = wildLabels(r.matches)
	return r
}

func (r *parsed) report(reason, path, format string, args ...any) {
	r.problems = append(r.problems, policy.Problem{
		Object: "policy " + r.id, Reason: reason, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

func (r *parsed) partly(path, format string, args ...any) {
	r.report(policy.ReasonPartiallyInvalid, path, format, args...)
}

// settings reads what is not a rule. A word that does not exist counts as the
// strictest one, so that a slip of the pen opens nothing.
func (r *parsed) settings() {
	switch e := r.spec.Enforcement; e {
	case "", v1alpha1.EnforcementEnforce:
	case v1alpha1.EnforcementAudit:
		r.audit = true
	default:
		r.partly("spec.enforcement", "%q is unknown; write Enforce or Audit (it counts as Enforce)", e)
	}
	switch d := r.spec.Denied; d {
	case "", v1alpha1.DeniedReject:
	case v1alpha1.DeniedDrop:
		r.denied = policy.Drop
	default:
		r.partly("spec.denied", "%q is unknown; write Reject or Drop (it counts as Drop)", d)
		r.denied = policy.Drop
	}
	switch u := r.spec.DNS.Unmatched; u {
	case "", v1alpha1.UnmatchedResolve:
	case v1alpha1.UnmatchedNXDomain:
		r.unmatched = policy.NXDomain
	case v1alpha1.UnmatchedRefuse:
		r.unmatched = policy.Refuse
	default:
		r.partly("spec.dns.unmatched", "%q is unknown; write Resolve, NXDomain or Refuse (it counts as Refuse)", u)
		r.unmatched = policy.Refuse
	}
	t := r.spec.TTL
	r.ttl = policy.TTL{
		Min:   r.seconds("spec.ttl.minSeconds", t.MinSeconds, policy.DefaultMinTTL, MaxTTLSeconds),
		Max:   r.seconds("spec.ttl.maxSeconds", t.MaxSeconds, policy.DefaultMaxTTL, MaxTTLSeconds),
		Grace: r.seconds("spec.ttl.graceSeconds", t.GraceSeconds, policy.DefaultGrace, MaxGraceSeconds),
	}
	if r.ttl.Max < r.ttl.Min {
		r.partly("spec.ttl", "maxSeconds %d is below minSeconds %d; write both, the greater as maxSeconds (the defaults %d and %d count)",
			r.ttl.Max/time.Second, r.ttl.Min/time.Second, policy.DefaultMaxTTL/time.Second, policy.DefaultMinTTL/time.Second)
		r.ttl.Min, r.ttl.Max = policy.DefaultMinTTL, policy.DefaultMaxTTL
	}
}

func (r *parsed) seconds(path string, written *int64, otherwise time.Duration, most int64) time.Duration {
	switch {
	case written == nil:
		return otherwise
	case *written < 1 || *written > most:
		r.partly(path, "%d seconds; write 1 to %d (the default %d counts)", *written, most, otherwise/time.Second)
		return otherwise
	}
	return time.Duration(*written) * time.Second
}

// rule adds an entry for a rule that can match something and opens some port.
func (r *parsed) rule(known paths, index int, rule *v1alpha1.EgressRule) {
	path := known.rule(index)
	ports := r.ports(path+".ports", rule.Ports)
	matches := rule.Matches
	if len(matches) == 0 {
		r.partly(path+".matches", "a rule without matches opens nothing; write a name, or pattern \"*\" for every name")
	}
	if len(matches) > MaxMatches {
		r.partly(path+".matches", "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		matches = matches[:MaxMatches]
	}
	names := make([]fqdn.Pattern, 0, len(matches))
	for i := range matches {
		at := known.match(index, i)
		pattern, ok := r.match(at, &matches[i])
		if !ok || ports == "" {
			continue
		}
		names = append(names, pattern)
		r.matches = append(r.matches, policy.NewMatch(policy.Match{
			Policy: r.id, Path: at, Pattern: pattern, Ports: ports, TTL: r.ttl, Audit: r.audit,
		}, len(r.matches)))
	}
	if len(names) > 0 {
		r.entries = append(r.entries, policy.Entry{
			Destinations: policy.Destinations{Names: names}, Ports: ports, TTL: r.ttl, Policy: r.id, Path: path, Audit: r.audit,
		})
	}
}

func (r *parsed) match(path string, m *v1alpha1.Match) (fqdn.Pattern, bool) {
	if (m.Name == nil) == (m.Pattern == nil) {
		r.partly(path, "write exactly one of name and pattern")
		return fqdn.Pattern{}, false
	}
	parse, text := fqdn.ParseExact, m.Name
	field := ".name"
	if text == nil {
		parse, text, field = fqdn.ParsePattern, m.Pattern, ".pattern"
	}
	pattern, err := parse(*text)
	if err != nil {
		r.partly(path+field, "%v", err)
		return fqdn.Pattern{}, false
	}
	return pattern, true
}
