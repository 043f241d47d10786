package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// calicoPolicy is a NetworkPolicy or GlobalNetworkPolicy of Calico Enterprise. Source:
// https://github.com/tigera/api, pkg/apis/projectcalico/v3.
type calicoPolicy struct {
	head
	Spec struct {
		Tier                   string            `json:"tier"`
		Order                  *float64          `json:"order"`
		Ingress                []json.RawMessage `json:"ingress"`
		Egress                 []calicoRule      `json:"egress"`
		Selector               string            `json:"selector"`
		Types                  []string          `json:"types"`
		ServiceAccountSelector string            `json:"serviceAccountSelector"`
		NamespaceSelector      string            `json:"namespaceSelector"`
		DoNotTrack             bool              `json:"doNotTrack"`
		PreDNAT                bool              `json:"preDNAT"`
		ApplyOnForward         bool              `json:"applyOnForward"`
		PerformanceHints       []string          `json:"performanceHints"`
	} `json:"spec"`
}

type calicoRule struct {
	Action      string              `json:"action"`
	IPVersion   *int                `json:"ipVersion"`
	Protocol    *intstr.IntOrString `json:"protocol"`
	ICMP        json.RawMessage     `json:"icmp"`
	NotProtocol json.RawMessage     `json:"notProtocol"`
	NotICMP     json.RawMessage     `json:"notICMP"`
	Source      calicoEntity        `json:"source"`
	Destination calicoEntity        `json:"destination"`
	HTTP        json.RawMessage     `json:"http"`
	Metadata    json.RawMessage     `json:"metadata"`
}

type calicoEntity struct {
	Nets              []string             `json:"nets"`
	Selector          string               `json:"selector"`
	NamespaceSelector string               `json:"namespaceSelector"`
	Services          json.RawMessage      `json:"services"`
	Ports             []intstr.IntOrString `json:"ports"`
	Domains           []string             `json:"domains"`
	NotNets           []string             `json:"notNets"`
	NotSelector       string               `json:"notSelector"`
	NotPorts          []intstr.IntOrString `json:"notPorts"`
	ServiceAccounts   json.RawMessage      `json:"serviceAccounts"`
}

// calico converts a NetworkPolicy of a namespace.
func (o *object) calico() {
	p, pods, ok := o.readCalico()
	if !ok {
		return
	}
	if err := o.ownNamespace(&pods.namespaces); err != nil {
		o.note(Failed, "spec.selector", "%v", err)
		return
	}
	if p.Spec.Order != nil {
		o.note(Dropped, "spec.order", "the policies of a namespace have no order: each adds what it allows")
	}
	o.calicoTier(p.Spec.Tier)
	rest := p.Spec.Egress
	rules := rulesOf(p.Spec.Egress, "spec.egress", func(e *calicoRule, path string) (r rule, ok bool) {
		rest = rest[1:]
		switch named := func(r calicoRule) bool { return r.Action == "Allow" && len(r.Destination.Domains) > 0 }; {
		case e.Action != "Allow" && e.Action != "Deny" && e.Action != "Pass":
			return o.calicoRule(e, path) // which says why there is none
		case e.Action != "Allow" && slices.ContainsFunc(rest, named):
			o.note(Wider, path, "%s before a rule with names is left out: policies of a namespace only allow; write a %s for it", e.Action, v1alpha1.ClusterKind)
		case e.Action == "Deny":
			o.note(Dropped, path, "Deny is left out: the policy denies what no rule allows")
		case len(e.Destination.Domains) == 0:
			o.unnamed(v1alpha1.ActionAccept, e.dns(), path, "%s without names is left out; write a NetworkPolicy for it", e.Action)
		default:
			return o.calicoRule(e, path)
		}
		return r, false
	})
	o.write(o.namespaced(o.name, pods.pods, rules))
}

// calicoGlobal converts a GlobalNetworkPolicy to a cluster policy before the namespaces' policies,
// and one that denies the rest.
func (o *object) calicoGlobal() {
	p, pods, ok := o.readCalico()
	if !ok {
		return
	}
	at := place{v1alpha1.TierAdmin, o.calicoOrder(p.Spec.Order)}
	own := p.Spec.Tier != "" && p.Spec.Tier != "default"
	o.calicoTier(p.Spec.Tier)
	rules := rulesOf(p.Spec.Egress, "spec.egress", func(e *calicoRule, path string) (rule, bool) {
		r, ok := o.calicoRule(e, path)
		if r.action == v1alpha1.ActionPass && ok && !own {
			o.note(Narrower, path, "Pass leads to the policies of the namespace, and without one to the rule that denies the rest; in Calico it allows behind the last tier")
		}
		if r.action == v1alpha1.ActionDeny && ok && !r.everywhere() {
			o.note(Narrower, path, "Deny comes before all policies of the namespaces, also those that Calico evaluates earlier")
		}
		return r, ok
	})
	if own {
		rules = append(rules, rule{name: "end of tier " + p.Spec.Tier, action: v1alpha1.ActionDeny})
	}
	o.write(o.ofCluster(o.name, at, &pods.namespaces, &pods.pods, rules))
	if !slices.ContainsFunc(rules, func(r rule) bool { return r.everywhere() && r.action == v1alpha1.ActionDeny && len(r.ports) == 0 }) {
		o.write(o.denyRest(o.name, &pods.namespaces, &pods.pods))
	}
}

// readCalico reads the policy and its selectors.
func (o *object) readCalico() (p calicoPolicy, pods calicoSelector, ok bool) {
	if !o.read(&p) {
		return p, pods, false
	}
	switch {
	case p.Spec.ServiceAccountSelector != "":
		o.note(Failed, "spec.serviceAccountSelector", "pods are not selected by service account; write their labels")
		return p, pods, false
	case p.Spec.DoNotTrack || p.Spec.PreDNAT || p.Spec.ApplyOnForward:
		o.note(Failed, "spec", "policies for host endpoints are not converted")
		return p, pods, false
	case p.Spec.NamespaceSelector != "" && !o.cluster:
		o.note(Failed, "spec.namespaceSelector", "a NetworkPolicy has none")
		return p, pods, false
	case len(p.Spec.Types) > 0 && !slices.Contains(p.Spec.Types, "Egress"),
		!slices.ContainsFunc(p.Spec.Egress, func(e calicoRule) bool { return len(e.Destination.Domains) > 0 }):
		o.noNames()
		return p, pods, false
	}
	err := pods.read(p.Spec.Selector)
	if err == nil {
		pods.ofNamespaces = true
		err = pods.read(p.Spec.NamespaceSelector)
	}
	if err != nil {
		o.note(Failed, "spec", "%v", err)
		return p, pods, false
	}
	o.noIngress(len(p.Spec.Ingress), "spec.ingress")
	if len(p.Spec.PerformanceHints) > 0 {
		o.note(Dropped, "spec.performanceHints", "they change nothing of what is allowed")
	}
	return p, pods, true
}

// calicoTier notes a tier that has no equal.
func (o *object) calicoTier(tier string) {
	if tier != "" && tier != "default" {
		o.note(Wider, "spec.tier", "tier %s has no equal, and its policies are no longer before those of later tiers; compare their rules, and write priorities of a %s", tier, v1alpha1.ClusterKind)
	}
}

// calicoOrder returns the priority for an order. Without one a policy is the last.
func (o *object) calicoOrder(order *float64) int32 {
	if order == nil {
		return cfqdnnp.MaxPriority
	}
	if n := *order; n >= 0 && n <= cfqdnnp.MaxPriority && n == math.Trunc(n) {
		return int32(n)
	}
	priority := int32(math.Round(min(max(*order, 0), cfqdnnp.MaxPriority)))
	o.note(Wider, "spec.order", "%v becomes priority %d, of 0 to %d: compare it with the priorities of the other policies", *order, priority, cfqdnnp.MaxPriority)
	return priority
}

// calicoRule converts a rule with Allow, Deny or Pass, and tells whether it has an equal.
func (o *object) calicoRule(e *calicoRule, path string) (rule, bool) {
	if e.Action == "Log" {
		o.note(Dropped, path, "Log is left out: the audit log has every decision")
		return rule{}, false
	}
	r, ok := o.actionOf(e.Action, path, map[string]v1alpha1.Action{"Allow": v1alpha1.ActionAccept, "Deny": v1alpha1.ActionDeny, "Pass": v1alpha1.ActionPass})
	if !ok {
		return r, false
	}
	d, limits := &e.Destination, others(e, "action", "protocol", "destination", "http", "metadata")
	for _, field := range others(d, "nets", "ports", "domains") {
		limits = append(limits, "destination."+field)
	}
	if len(limits) > 0 {
		o.unnamed(r.action, e.dns(), path, "is left out: %s has no equal", limits[0])
		return r, false
	}
	if len(d.Domains) > 0 && (r.action != v1alpha1.ActionAccept || len(d.Nets) > 0) {
		o.note(Failed, path, "Calico allows domains with Allow alone, and without nets")
		return r, false
	}
	if e.HTTP != nil {
		o.note(Wider, path+".http", "is left out: connections are judged by names, addresses and ports, not by their content")
	}
	if err := o.calicoPorts(&r, e, path); err != nil {
		o.without(r.action, path, "is left out: %v", err)
		return r, false
	}
	r.matches = o.names(calicoNames, r.action, d.Domains, index(path+".destination.domains"))
	for _, n := range d.Nets {
		r.networks = append(r.networks, network(n))
	}
	return r, (!r.everywhere() || len(d.Domains)+len(d.Nets) == 0) && r.open(len(d.Ports))
}

// dns tells whether a rule is for DNS alone.
func (e *calicoRule) dns() bool {
	return dnsAlone(e.Destination.Ports, func(p intstr.IntOrString) string { return p.String() })
}

// calicoPorts reads the ports of a rule. The error is for its protocol.
func (o *object) calicoPorts(r *rule, e *calicoRule, path string) error {
	if e.Protocol == nil {
		if len(e.Destination.Ports) > 0 {
			return fmt.Errorf("ports have no protocol")
		}
		return nil
	}
	p, err := protocolNamed(e.Protocol.String())
	if err != nil {
		return err
	}
	if len(e.Destination.Ports) == 0 {
		r.ports = []v1alpha1.Port{portOf(p, 0, 0)}
	}
	addPorts(o, r, e.Destination.Ports, path+".destination.ports", func(port intstr.IntOrString) (v1alpha1.Port, error) {
		first, last, _ := strings.Cut(port.String(), ":")
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(cmp.Or(last, first), 10, 16)
		if err1 != nil || err2 != nil || from == 0 || to < from {
			return v1alpha1.Port{}, fmt.Errorf("port %q is no number or range, and ports of other hosts have no names here", port.String())
		}
		return portOf(p, int32(from), int32(to)), nil
	})
	return nil
}

// network returns an address or a network as a network.
func network(text string) v1alpha1.Network {
	switch {
	case strings.Contains(text, "/"):
	case strings.Contains(text, ":"):
		text += "/128"
	default:
		text += "/32"
	}
	return v1alpha1.Network(text)
}
