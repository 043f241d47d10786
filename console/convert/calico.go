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
		Tier                   string       `json:"tier"`
		Order                  *float64     `json:"order"`
		Ingress                []calicoRule `json:"ingress"`
		Egress                 []calicoRule `json:"egress"`
		Selector               string       `json:"selector"`
		Types                  []string     `json:"types"`
		ServiceAccountSelector string       `json:"serviceAccountSelector"`
		NamespaceSelector      string       `json:"namespaceSelector"`
		DoNotTrack             bool         `json:"doNotTrack"`
		PreDNAT                bool         `json:"preDNAT"`
		ApplyOnForward         bool         `json:"applyOnForward"`
		PerformanceHints       []string     `json:"performanceHints"`
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
	p, ok := o.readCalico()
	if !ok {
		return
	}
	pods, ok := o.calicoPods(p)
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
	o.calicoTier(p.Spec.Tier, v1alpha1.ClusterKind)
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

// calicoGlobal converts a GlobalNetworkPolicy to policies for nodes, or to a cluster policy before the
// namespaces' policies, and one that denies the rest.
func (o *object) calicoGlobal() {
	p, ok := o.readCalico()
	if !ok || !o.calicoNodes(p) {
		return
	}
	pods, ok := o.calicoPods(p)
	if !ok {
		return
	}
	at := place{v1alpha1.TierAdmin, o.calicoOrder(p.Spec.Order, cfqdnnp.MaxPriority)}
	own := p.Spec.Tier != "" && p.Spec.Tier != "default"
	o.calicoTier(p.Spec.Tier, v1alpha1.ClusterKind)
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
	if !decided(rules, v1alpha1.ActionDeny) {
		o.write(o.denyRest(o.name, &pods.namespaces, &pods.pods))
	}
}

// readCalico reads a policy of either kind.
func (o *object) readCalico() (*calicoPolicy, bool) {
	var p calicoPolicy
	if !o.read(&p) {
		return nil, false
	}
	if p.Spec.ServiceAccountSelector != "" {
		o.note(Failed, "spec.serviceAccountSelector", "pods are not selected by service account; write their labels")
		return nil, false
	}
	if len(p.Spec.PerformanceHints) > 0 {
		o.note(Dropped, "spec.performanceHints", "they change nothing of what is allowed")
	}
	return &p, true
}

// named tells whether a rule for egress has names.
func (p *calicoPolicy) named() bool {
	return slices.ContainsFunc(p.Spec.Egress, func(e calicoRule) bool { return len(e.Destination.Domains) > 0 })
}

// calicoPods reads the selectors of a policy for pods.
func (o *object) calicoPods(p *calicoPolicy) (pods calicoSelector, ok bool) {
	switch {
	case !o.cluster && (p.Spec.DoNotTrack || p.Spec.PreDNAT || p.Spec.ApplyOnForward):
		o.note(Failed, "spec", "a NetworkPolicy is not for host endpoints")
		return pods, false
	case p.Spec.NamespaceSelector != "" && !o.cluster:
		o.note(Failed, "spec.namespaceSelector", "a NetworkPolicy has none")
		return pods, false
	case len(p.Spec.Types) > 0 && !slices.Contains(p.Spec.Types, "Egress"), !p.named():
		if o.noNames(); o.cluster {
			o.note(Failed, "spec.selector", "selects no %s of the manifests; if the policy is for host endpoints, convert it together with them", calicoHosts)
		}
		return pods, false
	}
	err := pods.read(p.Spec.Selector)
	if err == nil {
		pods.ofNamespaces = true
		err = pods.read(p.Spec.NamespaceSelector)
	}
	if err != nil {
		o.note(Failed, "spec", "%v", err)
		return pods, false
	}
	o.noIngress(len(p.Spec.Ingress), "spec.ingress")
	return pods, true
}

// calicoTier notes a tier that has no equal.
func (o *object) calicoTier(tier, kind string) {
	if tier != "" && tier != "default" {
		o.note(Wider, "spec.tier", "tier %s has no equal, and its policies are no longer before those of later tiers; compare their rules, and write priorities of a %s", tier, kind)
	}
}

// calicoOrder returns the priority for an order, of 0 to most. Without one a policy is the last.
func (o *object) calicoOrder(order *float64, most int32) int32 {
	if order == nil {
		return most
	}
	if n := *order; n >= 0 && n <= float64(most) && n == math.Trunc(n) {
		return int32(n)
	}
	priority := int32(math.Round(min(max(*order, 0), float64(most))))
	o.note(Wider, "spec.order", "%v becomes priority %d, of 0 to %d: compare it with the priorities of the other policies", *order, priority, most)
	return priority
}

// calicoRule converts a rule for pods, and tells whether it has an equal.
func (o *object) calicoRule(e *calicoRule, path string) (rule, bool) {
	r, ok := o.calicoEnds(e, path, &e.Destination, nil, []string{"nets", "ports", "domains"}, e.dns())
	return r, ok && (!r.everywhere() || len(e.Destination.Domains)+len(e.Destination.Nets) == 0)
}

// calicoEnds converts a rule with Allow, Deny or Pass to names and networks of its peer d, and tells whether it has
// an equal: fields of its ends other than those of source and destination have none.
func (o *object) calicoEnds(e *calicoRule, path string, d *calicoEntity, source, destination []string, dns bool) (rule, bool) {
	if e.Action == "Log" {
		o.note(Dropped, path, "Log is left out: the audit log has every decision")
		return rule{}, false
	}
	r, ok := o.actionOf(e.Action, path, map[string]v1alpha1.Action{"Allow": v1alpha1.ActionAccept, "Deny": v1alpha1.ActionDeny, "Pass": v1alpha1.ActionPass})
	if !ok {
		return r, false
	}
	limits := others(e, "action", "protocol", "source", "destination", "http", "metadata")
	for _, field := range others(e.Source, source...) {
		limits = append(limits, "source."+field)
	}
	for _, field := range others(e.Destination, destination...) {
		limits = append(limits, "destination."+field)
	}
	if len(limits) > 0 {
		o.unnamed(r.action, dns, path, "is left out: %s has no equal", limits[0])
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
	return r, r.open(len(e.Destination.Ports))
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
