package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// ciliumPolicy is a CiliumNetworkPolicy or CiliumClusterwideNetworkPolicy. Source:
// https://github.com/cilium/cilium, pkg/policy/api.
type ciliumPolicy struct {
	head
	Spec  *ciliumRule  `json:"spec"`
	Specs []ciliumRule `json:"specs"`
}

type ciliumRule struct {
	EndpointSelector  *metav1.LabelSelector `json:"endpointSelector"`
	NodeSelector      *metav1.LabelSelector `json:"nodeSelector"`
	Ingress           []json.RawMessage     `json:"ingress"`
	IngressDeny       []json.RawMessage     `json:"ingressDeny"`
	Egress            []ciliumEgress        `json:"egress"`
	EgressDeny        []json.RawMessage     `json:"egressDeny"`
	Labels            json.RawMessage       `json:"labels"`
	EnableDefaultDeny struct {
		Ingress *bool `json:"ingress"`
		Egress  *bool `json:"egress"`
	} `json:"enableDefaultDeny"`
	Description string          `json:"description"`
	Log         json.RawMessage `json:"log"`
}

type ciliumEgress struct {
	ToFQDNs []struct {
		MatchName    string `json:"matchName"`
		MatchPattern string `json:"matchPattern"`
	} `json:"toFQDNs"`
	ToPorts []struct {
		Ports          []ciliumPort    `json:"ports"`
		Rules          *ciliumL7       `json:"rules"`
		ServerNames    []string        `json:"serverNames"`
		Listener       json.RawMessage `json:"listener"`
		TerminatingTLS json.RawMessage `json:"terminatingTLS"`
		OriginatingTLS json.RawMessage `json:"originatingTLS"`
	} `json:"toPorts"`
	ToEndpoints    json.RawMessage   `json:"toEndpoints"`
	ToRequires     json.RawMessage   `json:"toRequires"`
	ToCIDR         json.RawMessage   `json:"toCIDR"`
	ToCIDRSet      json.RawMessage   `json:"toCIDRSet"`
	ToEntities     json.RawMessage   `json:"toEntities"`
	ToServices     json.RawMessage   `json:"toServices"`
	ToGroups       json.RawMessage   `json:"toGroups"`
	ToNodes        json.RawMessage   `json:"toNodes"`
	ICMPs          []json.RawMessage `json:"icmps"`
	Authentication json.RawMessage   `json:"authentication"`
}

type ciliumPort struct {
	Port     string `json:"port"`
	EndPort  int32  `json:"endPort"`
	Protocol string `json:"protocol"`
}

type ciliumL7 struct {
	HTTP    []json.RawMessage `json:"http"`
	Kafka   []json.RawMessage `json:"kafka"`
	L7Proto string            `json:"l7proto"`
	L7      []json.RawMessage `json:"l7"`
	DNS     []struct {
		MatchName    string `json:"matchName"`
		MatchPattern string `json:"matchPattern"`
	} `json:"dns"`
}

// cilium converts a CiliumNetworkPolicy to policies of its namespace, and a
// CiliumClusterwideNetworkPolicy to cluster policies: Accept before the namespaces' policies,
// and a Baseline policy that denies the rest.
func (o *object) cilium() {
	var p ciliumPolicy
	if !o.read(&p) {
		return
	}
	rules, paths := p.Specs, make([]string, len(p.Specs))
	for i := range paths {
		paths[i] = fmt.Sprintf("specs[%d]", i)
	}
	if p.Spec != nil {
		rules, paths = append([]ciliumRule{*p.Spec}, rules...), append([]string{"spec"}, paths...)
	}
	if len(rules) == 0 {
		o.note(Failed, "", "it has no spec")
	}
	for i := range rules {
		o.ciliumRule(&rules[i], paths[i], numberedName(o.name, i))
	}
}

func (o *object) ciliumRule(c *ciliumRule, path, name string) {
	if c.EndpointSelector == nil {
		o.note(Failed, path, "it selects no pods; policies for nodes are not converted")
		return
	}
	if !slices.ContainsFunc(c.Egress, func(e ciliumEgress) bool { return len(e.ToFQDNs) > 0 }) {
		o.noNames()
		return
	}
	namespaces, pods, err := o.ciliumSelector(c.EndpointSelector)
	if err != nil {
		o.note(Failed, path+".endpointSelector", "%v", err)
		return
	}
	o.noIngress(len(c.Ingress)+len(c.IngressDeny), path+".ingress")
	if len(c.EgressDeny) > 0 {
		o.note(Wider, path+".egressDeny", "is left out: addresses of the names are open also where it denies them; write a %s with Deny and networks", v1alpha1.ClusterKind)
	}
	if deny := c.EnableDefaultDeny.Egress; deny != nil && !*deny {
		o.note(Narrower, path+".enableDefaultDeny", "a policy with names denies everything else")
	}
	all := rulesOf(c.Egress, path+".egress", o.ciliumEgress)
	unmatched := o.ciliumQueries(c.Egress, path, all)
	if !o.cluster {
		made := o.namespaced(name, *pods, all)
		made.Spec.DNS.Unmatched = unmatched
		o.write(made)
		return
	}
	made := o.ofCluster(name, place{v1alpha1.TierAdmin, defaultPriority}, namespaces, pods, all)
	made.Spec.DNS.Unmatched = unmatched
	o.write(made)
	o.write(o.denyRest(name, namespaces, pods))
}

// defaultPriority is the priority of policies whose order has no effect.
const defaultPriority = 500

// ciliumEgress converts one rule, and tells whether it has names that can be read.
func (o *object) ciliumEgress(e *ciliumEgress, path string) (rule, bool) {
	r := rule{action: v1alpha1.ActionAccept}
	if len(e.ToFQDNs) == 0 {
		o.unnamed(r.action, e.dns(), path, "has no names and is left out; write a NetworkPolicy for it")
		return r, false
	}
	if more := others(e, "toFQDNs", "toPorts", "icmps", "authentication"); len(more) > 0 {
		o.note(Failed, path, "Cilium refuses %s beside toFQDNs; write two rules", more[0])
		return r, false
	}
	if len(e.ICMPs) > 0 {
		o.note(Narrower, path+".icmps", "is left out: no rule is for ICMP alone")
		return r, false
	}
	if e.Authentication != nil {
		o.note(Wider, path+".authentication", "is left out: peers are not authenticated")
	}
	for i, f := range e.ToFQDNs {
		r.matches = append(r.matches, o.nameOrPattern(ciliumNames, f.MatchName, f.MatchPattern, fmt.Sprintf("%s.toFQDNs[%d]", path, i))...)
	}
	return r, o.ciliumPorts(e, path, &r) && len(r.matches) > 0
}

// ciliumPorts reads the ports of a rule. It tells whether the rule has any that can be written.
func (o *object) ciliumPorts(e *ciliumEgress, path string, r *rule) bool {
	every := len(e.ToPorts) == 0
	for i, to := range e.ToPorts {
		at := fmt.Sprintf("%s.toPorts[%d]", path, i)
		for _, more := range others(to, "ports") {
			o.note(Wider, at+"."+more, "is left out: connections are judged by names, addresses and ports, not by their content")
		}
		every = every || len(to.Ports) == 0
		addPorts(o, r, to.Ports, at+".ports", ciliumPort.number)
	}
	if every {
		r.ports = nil
	}
	return every || len(r.ports) > 0
}

func (c ciliumPort) number() (v1alpha1.Port, error) {
	first, err := strconv.ParseUint(c.Port, 10, 16)
	if err != nil {
		return v1alpha1.Port{}, fmt.Errorf("port %q is no number, and ports of other hosts have no names here", c.Port)
	}
	p := v1alpha1.ProtocolALL
	if c.Protocol != "" && !strings.EqualFold(c.Protocol, "ANY") {
		if p, err = protocolNamed(c.Protocol); err != nil {
			return v1alpha1.Port{}, err
		}
	}
	return portOf(p, int32(first), c.EndPort), nil
}

// ciliumSelector returns the selectors of namespaces and of pods.
func (o *object) ciliumSelector(from *metav1.LabelSelector) (namespaces, pods *metav1.LabelSelector, err error) {
	namespaces, pods = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	place := func(key string) (into *metav1.LabelSelector, as string, err error) {
		if prefix, rest, found := strings.Cut(key, ":"); found {
			if prefix != "k8s" && prefix != "any" {
				return nil, "", fmt.Errorf("label %q is not of Kubernetes and has no equal", key)
			}
			key = rest
		}
		of, isNamespace := strings.CutPrefix(key, "io.cilium.k8s.namespace.labels.")
		switch {
		case key == "io.kubernetes.pod.namespace":
			return namespaces, corev1.LabelMetadataName, nil
		case isNamespace:
			return namespaces, of, nil
		case strings.HasPrefix(key, "io.cilium."):
			return nil, "", fmt.Errorf("label %q is Cilium's and has no equal; write a label of the pods", key)
		}
		return pods, key, nil
	}
	for key, value := range from.MatchLabels {
		into, as, err := place(key)
		if err != nil {
			return nil, nil, err
		}
		metav1.AddLabelToSelector(into, as, value)
	}
	for _, e := range from.MatchExpressions {
		into, as, err := place(e.Key)
		if err != nil {
			return nil, nil, err
		}
		e.Key = as
		into.MatchExpressions = append(into.MatchExpressions, e)
	}
	return namespaces, pods, o.ownNamespace(namespaces)
}
