package convert

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// antreaPolicy is a NetworkPolicy or ClusterNetworkPolicy of Antrea. Source:
// https://github.com/antrea-io/antrea, pkg/apis/crd/v1beta1, and v1alpha1 with the same fields.
type antreaPolicy struct {
	head
	Spec struct {
		Tier      string            `json:"tier"`
		Priority  float64           `json:"priority"`
		AppliedTo []antreaAppliedTo `json:"appliedTo"`
		Ingress   []json.RawMessage `json:"ingress"`
		Egress    []antreaRule      `json:"egress"`
	} `json:"spec"`
}

type antreaAppliedTo struct {
	PodSelector            *metav1.LabelSelector `json:"podSelector"`
	NamespaceSelector      *metav1.LabelSelector `json:"namespaceSelector"`
	ExternalEntitySelector json.RawMessage       `json:"externalEntitySelector"`
	Group                  string                `json:"group"`
	ServiceAccount         json.RawMessage       `json:"serviceAccount"`
	Service                json.RawMessage       `json:"service"`
	NodeSelector           json.RawMessage       `json:"nodeSelector"`
}

type antreaRule struct {
	Action        string            `json:"action"`
	Ports         []antreaPort      `json:"ports"`
	Protocols     []json.RawMessage `json:"protocols"`
	L7Protocols   []json.RawMessage `json:"l7Protocols"`
	To            []antreaPeer      `json:"to"`
	ToServices    []json.RawMessage `json:"toServices"`
	Name          string            `json:"name"`
	EnableLogging bool              `json:"enableLogging"`
	LogLabel      string            `json:"logLabel"`
	AppliedTo     []antreaAppliedTo `json:"appliedTo"`
}

type antreaPeer struct {
	FQDN    string `json:"fqdn"`
	IPBlock *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
	PodSelector            json.RawMessage `json:"podSelector"`
	NamespaceSelector      json.RawMessage `json:"namespaceSelector"`
	Namespaces             json.RawMessage `json:"namespaces"`
	ExternalEntitySelector json.RawMessage `json:"externalEntitySelector"`
	Group                  string          `json:"group"`
	ServiceAccount         json.RawMessage `json:"serviceAccount"`
	NodeSelector           json.RawMessage `json:"nodeSelector"`
	Scope                  string          `json:"scope"`
}

type antreaPort struct {
	policyPort
	SourcePort    *int32 `json:"sourcePort"`
	SourceEndPort *int32 `json:"sourceEndPort"`
}

// antrea converts policies of both kinds to cluster policies: both are lists in order, and
// allow what no rule matches.
func (o *object) antrea() {
	var p antreaPolicy
	if !o.read(&p) {
		return
	}
	if !slices.ContainsFunc(p.Spec.Egress, func(r antreaRule) bool {
		return slices.ContainsFunc(r.To, func(peer antreaPeer) bool { return peer.FQDN != "" })
	}) {
		o.noNames()
		return
	}
	if !o.cluster && !o.hasNamespace() {
		return
	}
	subjects := p.Spec.AppliedTo
	if len(subjects) == 0 {
		subjects = p.Spec.Egress[0].AppliedTo
		for _, r := range p.Spec.Egress {
			if !reflect.DeepEqual(r.AppliedTo, subjects) {
				o.note(Failed, "spec.egress", "its rules have several appliedTo; write a policy for each")
				return
			}
		}
	}
	if len(subjects) == 0 {
		o.note(Failed, "spec.appliedTo", "it is empty")
		return
	}
	o.noIngress(len(p.Spec.Ingress), "spec.ingress")
	at := o.antreaPlace(p.Spec.Tier, p.Spec.Priority)
	rules := rulesOf(p.Spec.Egress, "spec.egress", o.antreaRule)
	with := func(action string) bool {
		return slices.ContainsFunc(p.Spec.Egress, func(r antreaRule) bool { return r.Action == action })
	}
	if with("Drop") && with("Reject") {
		o.note(Changed, "spec.egress", "a policy has one denied: all its rules drop")
	}
	name := o.name
	if !o.cluster {
		name = o.namespace + "-" + o.name
	}
	for i := range subjects {
		as := name
		if i > 0 {
			as += "-" + strconv.Itoa(i)
		}
		namespaces, pods, err := o.antreaSubject(&subjects[i])
		if err != nil {
			o.note(Failed, fmt.Sprintf("spec.appliedTo[%d]", i), "%v", err)
			continue
		}
		made := o.ofCluster(as, at, namespaces, pods, rules)
		if with("Drop") {
			made.Spec.Denied = v1alpha1.DeniedDrop
		}
		o.write(made)
	}
}

// antreaTierPlaces is how many priorities each tier of Antrea has here.
const antreaTierPlaces = 200

// antreaPlace returns the place of a policy: Antrea's own tiers before Baseline share the tier
// Admin, each with its own priorities.
func (o *object) antreaPlace(tier string, priority float64) place {
	tiers := []string{"emergency", "securityops", "networkops", "platform", "application"}
	at, i := place{tier: v1alpha1.TierAdmin}, slices.Index(tiers, tier)
	switch {
	case tier == "" || i >= 0:
		if tier == "" {
			i = len(tiers) - 1
		}
		at.priority = int32(i * antreaTierPlaces)
	case tier == "baseline":
		at.tier = v1alpha1.TierBaseline
	default:
		o.note(Wider, "spec.tier", "the place of tier %s is not known; it is taken for application: compare the priorities", tier)
		at.priority = int32((len(tiers) - 1) * antreaTierPlaces)
	}
	n := int32(math.Round(min(max(priority, 0), antreaTierPlaces-1)))
	if float64(n) != priority {
		o.note(Wider, "spec.priority", "%v becomes %d, of 0 to %d in each tier: compare it with the priorities of the other policies", priority, n, antreaTierPlaces-1)
	}
	at.priority += n
	return at
}

// antreaSubject returns the selectors of namespaces and of pods.
func (o *object) antreaSubject(a *antreaAppliedTo) (namespaces, pods *metav1.LabelSelector, err error) {
	if len(others(a, "podSelector", "namespaceSelector")) > 0 {
		return nil, nil, fmt.Errorf("only podSelector and namespaceSelector have an equal")
	}
	namespaces, pods = a.NamespaceSelector, a.PodSelector
	switch {
	case !o.cluster && namespaces != nil:
		return nil, nil, fmt.Errorf("a NetworkPolicy is for pods of its namespace")
	case !o.cluster:
		namespaces = namespaceNamed(o.namespace)
	case namespaces == nil:
		namespaces = &metav1.LabelSelector{}
	}
	if pods == nil {
		pods = &metav1.LabelSelector{}
	}
	return namespaces, pods, nil
}

// antreaRule converts a rule, and tells whether anything of it is left.
func (o *object) antreaRule(e *antreaRule, path string) (rule, bool) {
	r, ok := o.actionOf(e.Action, path, map[string]v1alpha1.Action{
		"Allow": v1alpha1.ActionAccept, "Drop": v1alpha1.ActionDeny, "Reject": v1alpha1.ActionDeny, "Pass": v1alpha1.ActionPass,
	})
	if r.name = e.Name; !ok {
		return r, false
	}
	if len(e.Protocols) > 0 || len(e.ToServices) > 0 {
		o.without(r.action, path, "is left out: protocols and toServices have no equal")
		return r, false
	}
	if len(e.L7Protocols) > 0 {
		o.note(Wider, path+".l7Protocols", "is left out: connections are judged by names, addresses and ports, not by their content")
	}
	if e.EnableLogging {
		o.note(Dropped, path+".enableLogging", "the audit log has every decision")
	}
	for i, peer := range e.To {
		at := fmt.Sprintf("%s.to[%d]", path, i)
		switch {
		case peer.FQDN != "":
			r.matches = append(r.matches, o.names(antreaNames, r.action, []string{peer.FQDN}, func(int) string { return at + ".fqdn" })...)
		case peer.IPBlock != nil && len(peer.IPBlock.Except) == 0:
			r.networks = append(r.networks, network(peer.IPBlock.CIDR))
		default:
			o.unnamed(r.action, dnsAlone(e.Ports, func(p antreaPort) string { return p.text() }), at, "is left out: peers other than fqdn and ipBlock without except have no equal; write a NetworkPolicy or networks")
		}
	}
	addPorts(o, &r, e.Ports, path+".ports", antreaNumber)
	return r, (!r.everywhere() || len(e.To) == 0) && r.open(len(e.Ports))
}

func antreaNumber(p antreaPort) (v1alpha1.Port, error) {
	if p.SourcePort != nil || p.SourceEndPort != nil {
		return v1alpha1.Port{}, fmt.Errorf("source ports have no equal")
	}
	return numbered(p.policyPort)
}
