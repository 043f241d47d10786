package policytest

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NetworkPolicy is a NetworkPolicy that selects the pods of the namespace shop that are labelled with its name. Each
// rule is ports ("any", or "tcp/80,udp/53", "tcp/http", "tcp/1-9") followed by peers:
// labels of pods of the namespace, or networks, "!" before an exception of the last one;
// without peers it is a rule for everywhere.
func NetworkPolicy(name string, rules ...string) *networkingv1.NetworkPolicy {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	n.Spec.PodSelector.MatchLabels = map[string]string{name: "yes"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	for _, r := range rules {
		words := strings.Fields(r)
		rule := networkingv1.NetworkPolicyEgressRule{Ports: networkPorts(words[0])}
		for _, w := range words[1:] {
			except, isExcept := strings.CutPrefix(w, "!")
			switch {
			case isExcept:
				last := rule.To[len(rule.To)-1].IPBlock
				last.Except = append(last.Except, except)
			case strings.Contains(w, "/"):
				rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: w}})
			default:
				rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{w: "yes"}}})
			}
		}
		n.Spec.Egress = append(n.Spec.Egress, rule)
	}
	return n
}

func networkPorts(s string) []networkingv1.NetworkPolicyPort {
	if s == "any" {
		return nil
	}
	var out []networkingv1.NetworkPolicyPort
	for part := range strings.SplitSeq(s, ",") {
		proto, port, _ := strings.Cut(part, "/")
		protocol := corev1.Protocol(strings.ToUpper(proto))
		p := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		if first, last, isRange := strings.Cut(port, "-"); port != "" {
			value := intstr.Parse(first)
			p.Port = &value
			if n, err := strconv.Atoi(last); isRange && err == nil {
				end := int32(n)
				p.EndPort = &end
			}
		}
		out = append(out, p)
	}
	return out
}
