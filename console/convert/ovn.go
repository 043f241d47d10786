package convert

import (
	"encoding/json"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// ovnFirewall is an EgressFirewall of OVN-Kubernetes. Source: https://github.com/ovn-kubernetes/ovn-kubernetes,
// go-controller/pkg/crd/egressfirewall/v1.
type ovnFirewall struct {
	head
	Spec struct {
		Egress []ovnRule `json:"egress"`
	} `json:"spec"`
}

type ovnRule struct {
	Type string `json:"type"`
	To   struct {
		CIDRSelector string          `json:"cidrSelector"`
		DNSName      string          `json:"dnsName"`
		NodeSelector json.RawMessage `json:"nodeSelector"`
	} `json:"to"`
	Ports []ovnPort `json:"ports"`
}

type ovnPort struct {
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
}

func (p ovnPort) text() string { return strconv.Itoa(int(p.Port)) }

func (p ovnPort) number() (v1alpha1.Port, error) {
	protocol, err := protocolNamed(p.Protocol)
	return portOf(protocol, p.Port, 0), err
}

// ovn converts an EgressFirewall to a cluster policy of its namespace: its rules are in order, and
// connections that it allows are still subject to the policies of the namespace, so Allow is Pass.
func (o *object) ovn() {
	var p ovnFirewall
	if !o.read(&p) {
		return
	}
	if !slices.ContainsFunc(p.Spec.Egress, func(e ovnRule) bool { return e.To.DNSName != "" }) {
		o.noNames()
		return
	}
	if !o.hasNamespace() {
		return
	}
	rules := rulesOf(p.Spec.Egress, "spec.egress", func(e *ovnRule, path string) (r rule, ok bool) {
		// Without an Allow less is allowed, although it becomes a Pass.
		as := v1alpha1.ActionDeny
		switch e.Type {
		case "Allow":
			r.action, as = v1alpha1.ActionPass, v1alpha1.ActionAccept
		case "Deny":
			r.action = v1alpha1.ActionDeny
		default:
			o.note(Failed, path+".type", "%q is neither Allow nor Deny", e.Type)
			return r, false
		}
		switch to := &e.To; {
		case to.DNSName != "":
			d := ovnNames
			d.outside = r.action == v1alpha1.ActionDeny // an EgressFirewall concerns no Service: it neither opens nor denies one
			r.matches = o.names(d, as, []string{to.DNSName}, func(int) string { return path + ".to.dnsName" })
		case to.CIDRSelector != "":
			r.networks = []v1alpha1.Network{network(to.CIDRSelector)}
			if r.action == v1alpha1.ActionDeny {
				o.note(Narrower, path, "%s denies pods and Services in it too, which OVN-Kubernetes leaves out; put before it a rule with Pass and the networks of pods and Services", to.CIDRSelector)
			}
		default:
			o.unnamed(as, dnsAlone(e.Ports, ovnPort.text), path, "is left out: nodes are no peers of a %s; write networks", v1alpha1.ClusterKind)
		}
		addPorts(o, &r, e.Ports, path+".ports", ovnPort.number)
		return r, !r.everywhere() && r.open(len(e.Ports))
	})
	o.write(o.ofCluster(o.namespace+"-"+o.name, place{v1alpha1.TierAdmin, defaultPriority}, namespaceNamed(o.namespace), &metav1.LabelSelector{}, rules))
}
