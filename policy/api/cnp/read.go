package cnp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of a policy, as in the schema of its kind.
const (
	MaxRules     = 25
	MaxPeers     = 25 // of a rule
	MaxProtocols = 25 // of a rule
	MaxValues    = 25 // networks or domain names of a peer
)

// reader reads one object.
type reader struct{ *ordered.Policy }

// ID returns the name of a policy among those of all kinds.
func ID(name string) string { return idPrefix + name }

// IsID tells whether an id among those of all kinds is of this one.
func IsID(id string) bool { return strings.HasPrefix(id, idPrefix) }

// Object returns the name by which problems name a policy.
func Object(name string) string { return "clusternetworkpolicy " + name }

const idPrefix = "clusternetworkpolicy:"

// Read reads a ClusterNetworkPolicy. One whose tier, priority or subject cannot be read
// selects nothing.
func Read(from *unstructured.Unstructured) *ordered.Policy {
	r := &reader{&ordered.Policy{ID: ID(from.GetName()), Object: Object(from.GetName()), Standard: true, Denied: policy.Drop,
		TTL: policy.TTL{Min: policy.DefaultMinTTL, Max: policy.DefaultMaxTTL, Grace: policy.DefaultGrace, Reuse: policy.DefaultReuse, InUse: policy.Renew}}}
	spec, _ := from.Object["spec"].(map[string]any)
	r.place(spec)
	r.subject(spec["subject"])
	r.unknownFields(spec)
	r.rules(spec, "egress")
	r.rules(spec, "ingress")
	r.Invalidate()
	return r.Policy
}

// rules reads the rules of a direction.
func (r *reader) rules(spec map[string]any, direction string) {
	path := "spec." + direction
	rest := policy.Rule{Ingress: direction == "ingress", Path: path, Action: policy.Deny}
	list, ok := spec[direction].([]any)
	if !ok && spec[direction] != nil {
		r.AddBroken(rest)
		r.Invalid(path, "it is no list of rules")
	}
	for i, raw := range list[:min(len(list), MaxRules)] {
		r.rule(policy.Rule{Ingress: rest.Ingress, Path: fmt.Sprintf("%s[%d]", path, i)}, raw)
	}
	if len(list) > MaxRules { // the rest is one broken rule: a Deny may be among them
		r.Partly(path, "%d rules; write at most %d and put the rest into another policy; until then the rule denies every connection", len(list), MaxRules)
		r.AddBroken(rest)
	}
}

// decode reads a part of an object; an unknown field is an error.
func decode(from, into any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(text, into)
	return errors.Join(append(unknown, err)...)
}

// unknownFields reports the fields beside rules and subject that this version has no word for.
func (r *reader) unknownFields(spec map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		switch name {
		case "tier", "priority", "subject", "ingress", "egress":
		default:
			r.Partly("spec."+name, "the field is unknown and has no effect; remove it, or install a version of Namegate that knows it")
		}
	}
}

// place reads where in the order the policy stands.
func (r *reader) place(spec map[string]any) {
	switch tier, _ := spec["tier"].(string); tier {
	case admin:
		r.Tier = policy.Admin
	case base:
		r.Tier = policy.Baseline
	default:
		r.Invalid("spec.tier", "%q is no tier; write Admin or Baseline", tier)
	}
	priority := int32(-1)
	if err := decode(spec["priority"], &priority); err != nil || priority < 0 || priority > ordered.MaxPriority {
		r.Invalid("spec.priority", "%v is no priority; write 0 to %d", spec["priority"], ordered.MaxPriority)
	}
	r.Priority = priority
}

// subject reads whom the policy selects.
func (r *reader) subject(from any) {
	const path = "spec.subject"
	var s subject
	if err := decode(from, &s); err != nil {
		r.Invalid(path, "%s", oneLine(err))
	} else if lacksPods(from) {
		r.Invalid(path+".pods", "%s", needsPods)
	} else if (s.Namespaces == nil) == (s.Pods == nil) {
		r.Invalid(path, "write exactly one of namespaces and pods; namespaces: {} selects every pod")
	} else if r.Namespaces, r.Pods, err = selectors(s.Namespaces, s.Pods); err != nil {
		r.Invalid(path, "%v", err)
	}
}

// selectors reads those of whole namespaces, or of pods in namespaces.
func selectors(namespaces *metav1.LabelSelector, pods *namespacedPod) (of, in *peers.Selector, err error) {
	if pods == nil {
		pods = &namespacedPod{NamespaceSelector: *namespaces}
	}
	of, err = peers.NewSelector(&pods.NamespaceSelector)
	if err == nil {
		in, err = peers.NewSelector(&pods.PodSelector)
	}
	return of, in, err
}

const needsPods = "the podSelector is missing; write one, or {} for all"

// lacksPods tells whether a subject or peer has pods without the selector that the schema
// asks for: as {} it would select every pod.
func lacksPods(from any) bool {
	fields, _ := from.(map[string]any)
	pods, written := fields["pods"].(map[string]any)
	return written && pods["podSelector"] == nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
