package netpol

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestOneObjectHasFewProblems: they are said in status of every node.
func TestOneObjectHasFewProblems(t *testing.T) {
	var rules []networkingv1.NetworkPolicyEgressRule
	for range 5000 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{}}})
	}
	n := Read(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: rules}})
	diff.Equal(t, policy.MaxProblems+1, len(n.Problems), "problems")
	if last := n.Problems[len(n.Problems)-1]; last.Message != "more parts cannot work; fix the others first" {
		t.Errorf("%+v", last)
	}
}

// TestUnknownProtocolsOpenNothing: an empty protocol is no protocol that is not written.
func TestUnknownProtocolsOpenNothing(t *testing.T) {
	for _, protocol := range []corev1.Protocol{"", "tcp", "ICMP"} {
		ports := []networkingv1.NetworkPolicyPort{{Protocol: &protocol}}
		n := Read(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}}})
		if len(n.Problems) != 1 || !strings.Contains(n.Problems[0].Message, "is unknown, and the port opens nothing") {
			t.Errorf("protocol %q: %+v", protocol, n.Problems)
		}
	}
}

// aSpec returns a NetworkPolicy of shop.
func aSpec(t *testing.T, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	n := &networkingv1.NetworkPolicy{}
	n.Namespace, n.Name = "shop", "np"
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &n.Spec))
	return n
}

// TestDirections: a policy selects in those that it isolates, and its rules are of these alone.
func TestDirections(t *testing.T) {
	const rules = `egress: [{to: [{podSelector: {}}]}], ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {namespaceSelector: {}}], ports: [{port: 80}, {port: web}, {protocol: UDP, port: dns}]}, {ports: [{port: sql}]}, {}]`
	egress := []string{"false spec.egress[0] 1 shop: * any [] 1"}
	ingress := []string{
		"true spec.ingress[0] 1 *: * tcp/80 [{dns udp 0} {web tcp 0}] 3", "true spec.ingress[0] 2 192.0.2.0/24 tcp/80 [{dns udp 0} {web tcp 0}] 3",
		"true spec.ingress[1] 0   [{sql tcp 0}] 1", "true spec.ingress[2] 0  any [] 1",
	}
	empty := []string{}
	for spec, want := range map[string][2][]string{ // nil: it selects nothing
		"{" + rules + "}": {egress, ingress},
		"{policyTypes: [Ingress, Egress], " + rules + "}":                   {egress, ingress},
		"{policyTypes: [Egress], " + rules + "}":                            {egress, nil},
		"{policyTypes: [Ingress], " + rules + "}":                           {nil, ingress},
		"{policyTypes: [x], " + rules + "}":                                 {nil, nil},
		"{}":                                                                {nil, empty},
		"{egress: [{ports: [{port: 0}]}]}":                                  {empty, empty},
		"{ingress: [{from: [{}]}, {ports: [{port: a b c}]}]}":               {nil, empty},
		"{podSelector: {matchLabels: {a: b c}}, egress: [{}]}":              {nil, nil},
		"{podSelector: {matchLabels: {a: b c}}, policyTypes: [x, Ingress]}": {nil, nil},
	} {
		texts := func(p *ordered.Policy) (out []string) {
			if p.Pods != nil {
				out = []string{}
			}
			for _, r := range p.Rules {
				out = append(out, fmt.Sprint(r.Ingress, " ", r.Path, " ", r.Peer.Kind, " ", r.Peer.Key, " ", r.Ports, " ", r.PortNames, " ", r.Cost))
			}
			return out
		}
		n := aSpec(t, spec)
		out, in, both := ReadOne(n, false), ReadOne(n, true), Read(n)
		diff.Error(t, want, [2][]string{texts(out), texts(in)}, spec)
		diff.Error(t, append(append([]string{}, want[0]...), want[1]...), append([]string{}, texts(both)...), spec, "both")
		diff.Error(t, both.Problems, append(out.Problems, in.Problems...), spec, "problems of both")
	}
}

// TestSame: two objects of one name differ in one direction, or in both.
func TestSame(t *testing.T) {
	a := aSpec(t, "{ingress: [{}], egress: [{}]}")
	for spec, want := range map[string][2]bool{
		"{ingress: [{}], egress: [{}]}":                         {true, true},
		"{ingress: [{}], egress: [{}, {}]}":                     {false, true},
		"{ingress: [{}, {}], egress: [{}]}":                     {true, false},
		"{policyTypes: [Ingress], ingress: [{}], egress: [{}]}": {false, false},
	} {
		b := aSpec(t, spec)
		diff.Error(t, want, [2]bool{Same(a, b, false), Same(a, b, true)}, spec)
	}
}
