package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// awsPolicy is an ApplicationNetworkPolicy of EKS: a NetworkPolicy with names. Source:
// https://docs.aws.amazon.com/eks/latest/userguide/auto-net-pol.html.
type awsPolicy struct {
	head
	Spec struct {
		PodSelector metav1.LabelSelector `json:"podSelector"`
		Ingress     []json.RawMessage    `json:"ingress"`
		Egress      []awsEgress          `json:"egress"`
		PolicyTypes []string             `json:"policyTypes"`
	} `json:"spec"`
}

type awsEgress struct {
	To    []awsPeer    `json:"to"`
	Ports []policyPort `json:"ports"`
}

type awsPeer struct {
	DomainNames       []string        `json:"domainNames"`
	IPBlock           json.RawMessage `json:"ipBlock"`
	PodSelector       json.RawMessage `json:"podSelector"`
	NamespaceSelector json.RawMessage `json:"namespaceSelector"`
}

// aws converts an ApplicationNetworkPolicy.
func (o *object) aws() {
	var p awsPolicy
	if !o.read(&p) {
		return
	}
	named := false
	rules := rulesOf(p.Spec.Egress, "spec.egress", func(e *awsEgress, path string) (rule, bool) {
		r := rule{action: v1alpha1.ActionAccept}
		for j, peer := range e.To {
			at := fmt.Sprintf("%s.to[%d]", path, j)
			if len(peer.DomainNames) == 0 || len(others(peer, "domainNames")) > 0 {
				o.unnamed(r.action, dnsAlone(e.Ports, policyPort.text), at, "has no names and is left out; write a NetworkPolicy for it")
				continue
			}
			named = true
			r.matches = append(r.matches, o.names(awsNames, r.action, peer.DomainNames, index(at+".domainNames"))...)
		}
		if len(e.To) == 0 {
			o.unnamed(r.action, dnsAlone(e.Ports, policyPort.text), path, "is for every destination and is left out; write a NetworkPolicy for it")
		}
		addPorts(o, &r, e.Ports, path+".ports", numbered)
		return r, len(r.matches) > 0 && r.open(len(e.Ports))
	})
	if !named || len(p.Spec.PolicyTypes) > 0 && !slices.Contains(p.Spec.PolicyTypes, "Egress") {
		o.noNames()
		return
	}
	if slices.Contains(p.Spec.PolicyTypes, "Ingress") || len(p.Spec.PolicyTypes) == 0 || len(p.Spec.Ingress) > 0 {
		o.noIngress(1, "spec.ingress")
	}
	o.write(o.namespaced(o.name, p.Spec.PodSelector, rules))
}

// awsClusterPolicy is a ClusterNetworkPolicy of EKS. Source: the same.
type awsClusterPolicy struct {
	head
	Spec struct {
		Tier     string `json:"tier"`
		Priority int32  `json:"priority"`
		Subject  struct {
			Namespaces *metav1.LabelSelector `json:"namespaces"`
			Pods       *struct {
				NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
				PodSelector       metav1.LabelSelector `json:"podSelector"`
			} `json:"pods"`
		} `json:"subject"`
		Ingress []json.RawMessage `json:"ingress"`
		Egress  []awsClusterRule  `json:"egress"`
	} `json:"spec"`
}

type awsClusterRule struct {
	Name   string `json:"name"`
	Action string `json:"action"`
	To     []struct {
		Namespaces  json.RawMessage `json:"namespaces"`
		Pods        json.RawMessage `json:"pods"`
		Nodes       json.RawMessage `json:"nodes"`
		Networks    []string        `json:"networks"`
		DomainNames []string        `json:"domainNames"`
	} `json:"to"`
	Ports []awsPort `json:"ports"`
}

type awsPort struct {
	PortNumber *struct {
		Protocol string `json:"protocol"`
		Port     int32  `json:"port"`
	} `json:"portNumber"`
	PortRange *struct {
		Protocol string `json:"protocol"`
		Start    int32  `json:"start"`
		End      int32  `json:"end"`
	} `json:"portRange"`
	NamedPort string `json:"namedPort"`
}

func (p awsPort) text() string {
	if p.PortNumber != nil {
		return strconv.Itoa(int(p.PortNumber.Port))
	}
	return p.NamedPort
}

func (p awsPort) number() (v1alpha1.Port, error) {
	switch {
	case p.PortNumber != nil:
		return numbered(policyPort{p.PortNumber.Protocol, &intstr.IntOrString{IntVal: p.PortNumber.Port}, 0})
	case p.PortRange != nil:
		return numbered(policyPort{p.PortRange.Protocol, &intstr.IntOrString{IntVal: p.PortRange.Start}, p.PortRange.End})
	}
	return v1alpha1.Port{}, errors.New("ports of other hosts have no names here")
}

// awsCluster converts a ClusterNetworkPolicy, which has the same tiers, priorities and actions.
func (o *object) awsCluster() {
	var p awsClusterPolicy
	if !o.read(&p) {
		return
	}
	if !slices.ContainsFunc(p.Spec.Egress, func(e awsClusterRule) bool {
		for _, to := range e.To {
			if len(to.DomainNames) > 0 {
				return true
			}
		}
		return false
	}) {
		o.noNames()
		return
	}
	o.noIngress(len(p.Spec.Ingress), "spec.ingress")
	var namespaces, pods *metav1.LabelSelector
	switch s := p.Spec.Subject; {
	case (s.Namespaces == nil) == (s.Pods == nil):
		o.note(Failed, "spec.subject", "write exactly one of namespaces and pods")
		return
	case s.Pods != nil:
		namespaces, pods = &s.Pods.NamespaceSelector, &s.Pods.PodSelector
	default:
		namespaces, pods = s.Namespaces, &metav1.LabelSelector{}
	}
	o.write(o.ofCluster(o.name, place{v1alpha1.Tier(p.Spec.Tier), p.Spec.Priority}, namespaces, pods, rulesOf(p.Spec.Egress, "spec.egress", o.awsRule)))
}

func (o *object) awsRule(e *awsClusterRule, path string) (rule, bool) {
	r, ok := o.actionOf(e.Action, path, map[string]v1alpha1.Action{
		"Accept": v1alpha1.ActionAccept, "Allow": v1alpha1.ActionAccept /* the documents' word */, "Deny": v1alpha1.ActionDeny, "Pass": v1alpha1.ActionPass,
	})
	if r.name = e.Name; !ok {
		return r, false
	}
	for i, to := range e.To {
		at := fmt.Sprintf("%s.to[%d]", path, i)
		if len(others(to, "networks", "domainNames")) > 0 {
			o.unnamed(r.action, dnsAlone(e.Ports, awsPort.text), at, "is left out: a %s has no peers by pods, namespaces or nodes; write networks, or a ClusterNetworkPolicy of the Kubernetes network policy API", v1alpha1.ClusterKind)
			continue
		}
		r.matches = append(r.matches, o.names(awsNames, r.action, to.DomainNames, index(at+".domainNames"))...)
		for _, n := range to.Networks {
			r.networks = append(r.networks, network(n))
		}
	}
	addPorts(o, &r, e.Ports, path+".ports", awsPort.number)
	return r, !r.everywhere() && r.open(len(e.Ports))
}
