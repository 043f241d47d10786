package convert

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// gkePolicy is an FQDNNetworkPolicy of GKE, whose rules have matches, or of the open-source controller
// of that group, whose rules have to. Sources: https://github.com/GoogleCloudPlatform/gke-networking-api,
// apis/fqdnnetworkpolicy/v1alpha1; https://github.com/GoogleCloudPlatform/gke-fqdnnetworkpolicies-golang, api.
type gkePolicy struct {
	head
	Spec struct {
		PodSelector *metav1.LabelSelector `json:"podSelector"`
		Ingress     []json.RawMessage     `json:"ingress"`
		Egress      []gkeEgress           `json:"egress"`
		PolicyTypes []string              `json:"policyTypes"`
	} `json:"spec"`
}

type gkeEgress struct {
	Matches []struct {
		Name    string `json:"name"`
		Pattern string `json:"pattern"`
	} `json:"matches"`
	To []struct {
		FQDNs []string `json:"fqdns"`
	} `json:"to"`
	Ports []policyPort `json:"ports"`
}

// gke converts an FQDNNetworkPolicy of either origin. A port without a protocol is one of TCP for the
// open-source controller, which writes NetworkPolicies, and of every protocol in GKE.
func (o *object) gke() {
	var p gkePolicy
	if !o.read(&p) {
		return
	}
	s := &p.Spec
	if s.PodSelector == nil {
		o.note(Failed, "spec.podSelector", "is missing; write one, or {} for every pod of the namespace")
		return
	}
	if len(s.Egress) == 0 || len(s.PolicyTypes) > 0 && !slices.Contains(s.PolicyTypes, "Egress") {
		o.noNames()
		return
	}
	o.noIngress(len(s.Ingress), "spec.ingress")
	o.write(o.namespaced(o.name, *s.PodSelector, rulesOf(s.Egress, "spec.egress", func(e *gkeEgress, path string) (rule, bool) {
		r := rule{action: v1alpha1.ActionAccept}
		for j, m := range e.Matches {
			r.matches = append(r.matches, o.nameOrPattern(gkeNames, m.Name, m.Pattern, fmt.Sprintf("%s.matches[%d]", path, j))...)
		}
		for j, to := range e.To {
			r.matches = append(r.matches, o.names(gkeNames, r.action, to.FQDNs, index(fmt.Sprintf("%s.to[%d].fqdns", path, j)))...)
		}
		if len(e.Matches)+len(e.To) == 0 {
			o.note(Dropped, path, "has no names, and opens nothing")
		}
		addPorts(o, &r, e.Ports, path+".ports", func(port policyPort) (v1alpha1.Port, error) {
			if port.Protocol == "" && len(e.To) == 0 {
				port.Protocol = string(v1alpha1.ProtocolALL)
			}
			return numbered(port)
		})
		return r, len(r.matches) > 0 && r.open(len(e.Ports))
	})))
}
