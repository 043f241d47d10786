package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// antreaPolicy is a NetworkPolicy or ClusterNetworkPolicy of Antrea. Source:
// https://github.com/antrea-io/antrea, pkg/apis/crd/v1beta1, and v1alpha1 with the same fields.
type antreaPolicy struct {
	head
	Spec struct {
		Tier      string            `json:"tier"`
		Priority  float64           `json:"priority"`
		AppliedTo []antreaAppliedTo `json:"appliedTo"`
		Ingress   []antreaRule      `json:"ingress"`
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
	NodeSelector           *metav1.LabelSelector `json:"nodeSelector"`
}

type antreaRule struct {
	Action        string            `json:"action"`
	Ports         []antreaPort      `json:"ports"`
	Protocols     []json.RawMessage `json:"protocols"`
	L7Protocols   []json.RawMessage `json:"l7Protocols"`
	From          []antreaPeer      `json:"from"`
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
	PodSelector            *metav1.LabelSelector `json:"podSelector"`
	NamespaceSelector      *metav1.LabelSelector `json:"namespaceSelector"`
	Namespaces             json.RawMessage       `json:"namespaces"`
	ExternalEntitySelector json.RawMessage       `json:"externalEntitySelector"`
	Group                  string                `json:"group"`
	ServiceAccount         json.RawMessage       `json:"serviceAccount"`
	NodeSelector           *metav1.LabelSelector `json:"nodeSelector"`
	Scope                  string                `json:"scope"`
}

type antreaPort struct {
	policyPort
	SourcePort    *int32 `json:"sourcePort"`
	SourceEndPort *int32 `json:"sourceEndPort"`
}

// antrea converts policies of both kinds to cluster policies, and those for nodes to policies for nodes: all
// of these are lists in order, and allow what no rule matches.
func (o *object) antrea() {
	var p antreaPolicy
	if !o.read(&p) {
		return
	}
	if o.cluster && slices.ContainsFunc(p.Spec.AppliedTo, func(a antreaAppliedTo) bool { return a.NodeSelector != nil }) {
		o.antreaNodes(&p)
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
	denied := o.antreaDenied(p.Spec.Egress)
	name := o.name
	if !o.cluster {
		name = o.namespace + "-" + o.name
	}
	for i := range subjects {
		namespaces, pods, err := o.antreaSubject(&subjects[i])
		if err != nil {
			o.note(Failed, fmt.Sprintf("spec.appliedTo[%d]", i), "%v", err)
			continue
		}
		made := o.ofCluster(numberedName(name, i), at, namespaces, pods, rules)
		made.Spec.Denied = denied
		o.write(made)
	}
}

// antreaNodes converts a policy for nodes. It is for their own connections, over every interface.
func (o *object) antreaNodes(p *antreaPolicy) {
	priority := o.antreaPriority(antreaTiers+" baseline", p.Spec.Tier, p.Spec.Priority)
	convert := func(e *antreaRule, path string) (rule, bool) {
		r, ok := o.antreaPeers(e, path, o.antreaNodePeer)
		o.noPass(&r, path)
		return r, ok
	}
	ingress, egress := rulesOf(p.Spec.Ingress, "spec.ingress", convert), rulesOf(p.Spec.Egress, "spec.egress", convert)
	denied := o.antreaDenied(slices.Concat(p.Spec.Ingress, p.Spec.Egress))
	for i := range p.Spec.AppliedTo {
		a := &p.Spec.AppliedTo[i]
		if a.NodeSelector == nil || len(others(a, "nodeSelector")) > 0 {
			o.note(Failed, fmt.Sprintf("spec.appliedTo[%d]", i), "a policy for nodes is not for pods too; write another policy for them")
			continue
		}
		made := o.ofNodes(numberedName(o.name, i), nodeSubject{a.NodeSelector, []v1alpha1.Interface{"*"}}, v1alpha1.TrafficLocal, priority, ingress, egress)
		made.Spec.Denied = denied
		o.write(made)
	}
}

// antreaDenied returns what becomes of denied connections: the policies here have one action for all.
func (o *object) antreaDenied(rules []antreaRule) v1alpha1.Denied {
	with := func(action string) bool {
		return slices.ContainsFunc(rules, func(r antreaRule) bool { return r.Action == action })
	}
	if !with("Drop") {
		return ""
	}
	if with("Reject") {
		o.note(Changed, "spec", "a policy has one denied: all its rules drop")
	}
	return v1alpha1.DeniedDrop
}

// antreaTiers are Antrea's own tiers before those of namespaces, in order. The last is that of a policy that names none.
const antreaTiers = "emergency securityops networkops platform application"

// antreaPlace returns the place of a policy: the tiers before Baseline share the tier Admin.
func (o *object) antreaPlace(tier string, priority float64) place {
	if tier == "baseline" {
		return place{v1alpha1.TierBaseline, o.antreaPriority(antreaTiers, "emergency", priority)}
	}
	return place{v1alpha1.TierAdmin, o.antreaPriority(antreaTiers, tier, priority)}
}

// antreaPriority returns the priority of a policy where the tiers share the priorities: each has as many of them.
func (o *object) antreaPriority(all, tier string, priority float64) int32 {
	tiers := strings.Fields(all)
	places, i := cfqdnnp.MaxPriority/len(tiers), slices.Index(tiers, cmp.Or(tier, "application"))
	if i < 0 {
		o.note(Wider, "spec.tier", "the place of tier %s is not known; it is taken for application: compare the priorities", tier)
		i = slices.Index(tiers, "application")
	}
	n := int(math.Round(min(max(priority, 0), float64(places-1))))
	if float64(n) != priority {
		o.note(Wider, "spec.priority", "%v becomes %d, of 0 to %d in each tier: compare it with the priorities of the other policies", priority, n, places-1)
	}
	return int32(i*places + n)
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

// antreaRule converts a rule of a policy for pods, and tells whether anything of it is left.
func (o *object) antreaRule(e *antreaRule, path string) (rule, bool) {
	return o.antreaPeers(e, path, func(r *rule, _ *antreaPeer, at string) {
		o.unnamed(r.action, dnsAlone(e.Ports, func(p antreaPort) string { return p.text() }), at, "is left out: peers other than fqdn and ipBlock without except have no equal; write a NetworkPolicy or networks")
	})
}

// antreaNodePeer adds a peer of a rule for nodes that has neither a name nor a network.
func (o *object) antreaNodePeer(r *rule, peer *antreaPeer, at string) {
	switch more := others(peer, "podSelector", "namespaceSelector", "nodeSelector", "scope"); {
	case len(more) > 0 || peer.Scope != "" && peer.Scope != "Cluster" || peer.NodeSelector != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
		o.without(r.action, at, "is left out: only fqdn, ipBlock without except, nodeSelector, podSelector and namespaceSelector have an equal; write networks")
	case peer.NodeSelector != nil:
		r.nodes = append(r.nodes, peer.NodeSelector)
	default:
		every := &metav1.LabelSelector{}
		r.pods = append(r.pods, &v1alpha1.PodSubject{NamespaceSelector: cmp.Or(peer.NamespaceSelector, every), PodSelector: cmp.Or(peer.PodSelector, every)})
	}
}

// antreaPeers converts a rule, and tells whether anything of it is left. Peers that are neither names nor networks
// are given to more.
func (o *object) antreaPeers(e *antreaRule, path string, more func(r *rule, peer *antreaPeer, at string)) (rule, bool) {
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
	peers, list := e.To, "to"
	if len(e.From) > 0 {
		peers, list = e.From, "from"
	}
	for i, peer := range peers {
		at := fmt.Sprintf("%s.%s[%d]", path, list, i)
		switch {
		case peer.FQDN != "" && list == "to":
			r.matches = append(r.matches, o.names(antreaNames, r.action, []string{peer.FQDN}, func(int) string { return at + ".fqdn" })...)
		case peer.IPBlock != nil && len(peer.IPBlock.Except) == 0:
			r.networks = append(r.networks, network(peer.IPBlock.CIDR))
		default:
			more(&r, &peer, at)
		}
	}
	addPorts(o, &r, e.Ports, path+".ports", antreaNumber)
	return r, (!r.everywhere() || len(peers) == 0) && r.open(len(e.Ports))
}

func antreaNumber(p antreaPort) (v1alpha1.Port, error) {
	if p.SourcePort != nil || p.SourceEndPort != nil {
		return v1alpha1.Port{}, fmt.Errorf("source ports have no equal")
	}
	return numbered(p.policyPort)
}
