package enforcer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	quotas "github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/compile"
)

// TestPeerRulesAreAsManyAsCounted: the compiler bounds NetworkPolicies by netpol.Cost, and
// the rules of the kernel are as many, but for a range that does not fit where a port does: in
// each rule, and at the end of each of three protocols.
func TestPeerRulesAreAsManyAsCounted(t *testing.T) {
	check := func(ports policy.PortSet) {
		t.Helper()
		for _, peer := range []policy.Peer{{Kind: policy.PeerPods, Key: "shop: app=db"}, {Kind: policy.PeerNetworks, Key: "198.51.100.0/24"}, {}} {
			if peer.Kind == policy.PeerAnywhere && ports == policy.AnyPort {
				continue // a list with that asks nothing else
			}
			rendered := 0
			if l := newPeerList([]allowance{{peer: peer, ports: ports}}); l != nil {
				rendered = len(ruleset{family: 4}.reachRules(l))
			}
			if counted := quotas.Cost(ports); rendered < counted || rendered > counted+counted/(portsPerRule-1)+3 {
				t.Errorf("%v on %.300s is %d rules, counted %d", peer, ports, rendered, counted)
			}
		}
	}
	for _, ports := range []policy.PortSet{"", policy.AnyPort, "tcp", "tcp,udp,sctp", "tcp/443", "tcp/1-9", "tcp/443,udp", "tcp,udp/53"} {
		check(ports)
	}
	r := rand.New(rand.NewPCG(1, 15))
	for n := range 200 {
		var ranges []policy.PortRange
		for i := range n {
			first := uint16(1 + 4*i)
			ranges = append(ranges, policy.PortRange{
				Protocol: []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}[r.IntN(1+n%3)], First: first, Last: first + uint16(r.IntN(1+n%4)),
			})
		}
		check(policy.NewPortSet(ranges...))
	}
}

// TestRulesOfManyPorts: what is in the chains of all pods is within the bound of the node.
func TestRulesOfManyPorts(t *testing.T) {
	wide := netpol("wide")
	for i := range 20 {
		rule := netpol("", fmt.Sprintf("tcp/1 198.51.100.%d/32", i)).Spec.Egress[0]
		for p := int32(1); p < 1000; p += 2 {
			port := *rule.Ports[0].DeepCopy()
			port.Port.IntVal = p
			rule.Ports = append(rule.Ports, port)
		}
		wide.Spec.Egress = append(wide.Spec.Egress, rule)
	}
	in := compile.Input{Policies: []v1alpha1.FQDNNetworkPolicy{pol("allow")}, NetworkPolicies: []*networkingv1.NetworkPolicy{wide}}
	for i := range 60 {
		own := fmt.Sprint("own", i)
		in.Pods = append(in.Pods, pod(fmt.Sprint("pod", i), fmt.Sprintf("10.1.0.%d", 5+i), "allow", "wide", own))
		in.NetworkPolicies = append(in.NetworkPolicies, netpol(own, fmt.Sprintf("tcp/80 198.51.101.%d/32", i)))
	}
	s := compile.New().Compile(in)
	lists, rules := map[string]bool{}, 0
	for _, v := range s.Views {
		var all []allowance
		for _, p := range v.PeerRules() {
			all = append(all, allowance{peer: p.Peer, ports: p.Ports})
		}
		if l := newPeerList(all); l != nil && !lists[l.chain] {
			lists[l.chain] = true
			rules += len(ruleset{family: 4}.reachRules(l))
		}
	}
	if rules > compile.MaxPeerRules || rules < compile.MaxPeerRules/2 || len(s.Problems) == 0 {
		t.Errorf("%d rules in %d lists, problems %v", rules, len(lists), s.Problems)
	}
}
