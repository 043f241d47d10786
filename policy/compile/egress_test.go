package compile

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/diff"
)

// blockRules is rules to one address each, from a number on, on one port.
func blockRules(n *networkingv1.NetworkPolicy, first, rules int, port int32) *networkingv1.NetworkPolicy {
	for i := first; i < first+rules; i++ {
		n.Spec.Egress = append(n.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("198.18.%d.%d/32", i>>8, i&255)}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromInt32(port))}},
		})
	}
	return n
}

// TestPeersOfAViewAreBounded: room is given in the order of the names, equal rules need
// no further room, and rules beyond the bound are reported once and open nothing.
func TestPeersOfAViewAreBounded(t *testing.T) {
	nets := []*networkingv1.NetworkPolicy{
		blockRules(aNet(t, "b", "policyTypes: [Egress]"), 0, MaxViewPeers-1, 80),
		blockRules(blockRules(aNet(t, "c", "policyTypes: [Egress]"), 0, 2, 80), 5000, 3, 443),
		blockRules(aNet(t, "a", "policyTypes: [Egress]"), 9000, 1, 443),
		blockRules(aNet(t, "d", "{policyTypes: [Egress], podSelector: {matchLabels: {app: other}}}"), 9001, 1, 443),
	}
	nets[1].Spec.Egress[4].To = append(nets[1].Spec.Egress[4].To, networkingv1.NetworkPolicyPeer{PodSelector: labelled("two", "kinds")})
	in := besideInput(nil, nets...)
	in.Pods = append(in.Pods, aPod("web2", "web", "10.0.0.2"), aPod("other", "other", "10.0.0.3"))
	c := New()
	for range 2 {
		s := c.Compile(in)
		why := ": the NetworkPolicies that select it have more than 4096 different pairs of peers and ports together, each 15 ports of one counted; write wider selectors or networks, or give rules the same ports"
		want := []string{
			"networkpolicy shop/c PartiallyInvalid spec.egress[2]: this rule and 2 more of the NetworkPolicy open not all that they say for pod shop/other" + why,
			"networkpolicy shop/d PartiallyInvalid spec.egress[0]: this rule opens not all that it says for pod shop/other" + why,
		}
		diff.Error(t, want, problemTexts(s))
		web := s.Views[1]
		if web.Pod.Name != "web" || len(web.PeerRules()) != MaxViewPeers+2 || len(s.PeerSets) != MaxViewPeers {
			t.Fatalf("%s has %d rules, there are %d sets", web.Pod, len(web.PeerRules()), len(s.PeerSets))
		}
		if got := peersAt(s, web, addr("198.18.0.1"), policy.TCP, 80); len(got) != 2 || got[0].Policy != "shop/b" || got[1].Policy != "shop/c" {
			t.Errorf("rules that have room by others' pair: %v", got)
		}
		if peersAt(s, web, addr("198.18.35.40"), policy.TCP, 443) == nil || peersAt(s, web, addr("198.18.19.136"), policy.TCP, 443) != nil {
			t.Error("room is not given by name")
		}
	}
	in.NetworkPolicies = nets[1:]
	if s := c.Compile(in); len(s.Problems) > 0 || peersAt(s, s.Views[1], addr("198.18.19.136"), policy.TCP, 443) == nil {
		t.Errorf("with room for all: %v", problemTexts(s))
	}
}

// TestNetworksOfARuleAreBounded, as few as they are, not as they are written.
func TestNetworksOfARuleAreBounded(t *testing.T) {
	every := func(step int) *networkingv1.NetworkPolicy {
		n := aNet(t, "np", "policyTypes: [Egress]")
		var rule networkingv1.NetworkPolicyEgressRule
		for i := range netpol.MaxPeerNetworks + 2 {
			rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.%d/32", i*step>>16, i*step>>8&255, i*step&255)}})
		}
		n.Spec.Egress = append(n.Spec.Egress, rule)
		return n
	}
	s := New().Compile(besideInput(nil, every(1)))
	if len(s.Problems) > 0 || len(s.PeerSets[0].Networks) != 2 {
		t.Errorf("neighbours: %d networks, %v", len(s.PeerSets[0].Networks), problemTexts(s))
	}
	s = New().Compile(besideInput(nil, every(2)))
	if got := problemTexts(s); len(got) != 1 || !strings.HasPrefix(got[0], "networkpolicy shop/np PartiallyInvalid spec.egress[0].to: the ipBlocks make 65538 networks, and those after 10.1.255.254/32 open nothing") {
		t.Error(got)
	}
	set := s.PeerSets[0]
	if len(set.Networks) != netpol.MaxPeerNetworks || !set.Contains(addr("10.1.255.254"), policy.TCP, 1) || set.Contains(addr("10.2.0.0"), policy.TCP, 1) {
		t.Errorf("%d networks, last %v", len(set.Networks), set.Networks[len(set.Networks)-1])
	}
}

// TestPortsOfARuleAreBounded, as few ranges as they are, not as they are written.
func TestPortsOfARuleAreBounded(t *testing.T) {
	every := func(ports int, step int32) *policy.Snapshot {
		var rule networkingv1.NetworkPolicyEgressRule
		for _, proto := range []corev1.Protocol{"SCTP", "UDP", "TCP"} {
			for i := range int32(ports) {
				rule.Ports = append(rule.Ports, netPort(proto, ptr(intstr.FromInt32(1+i*step)), nil))
			}
		}
		return New().Compile(besideInput(nil, egressTo("shop", "np", rule)))
	}
	if s := every(32768, 1); len(s.Problems) > 0 || s.Views[0].PeerRules()[0].Ports != "tcp/1-32768,udp/1-32768,sctp/1-32768" {
		t.Errorf("neighbours: %v, %v", s.Views[0].PeerRules(), problemTexts(s))
	}
	s := every(32768, 2)
	want := []string{"networkpolicy shop/np PartiallyInvalid spec.egress[0].ports: the ports make 98304 ranges, and those after tcp/1023 open nothing; " +
		"write wider ranges, or several rules, each of 512 ranges at most"}
	diff.Error(t, want, problemTexts(s))
	if got := allows(s, "192.0.2.1 tcp 1023", "192.0.2.1 tcp 1025", "192.0.2.1 tcp 2", "192.0.2.1 udp 1"); len(got) != 1 {
		t.Errorf("open: %v", got)
	}
	if s := every(170, 2); len(s.Problems) > 0 || len(s.Views[0].PeerRules()[0].Ports.Ranges()) != 510 {
		t.Errorf("as many as there may be: %v", problemTexts(s))
	}
}

// TestPortsTakeRoom of a view as the rules of the kernel that they are.
func TestPortsTakeRoom(t *testing.T) {
	n := blockRules(aNet(t, "np", "policyTypes: [Egress]"), 0, 200, 80)
	for i := range n.Spec.Egress {
		for p := range int32(netpol.MaxPeerPorts - 1) {
			n.Spec.Egress[i].Ports = append(n.Spec.Egress[i].Ports, netPort("", ptr(intstr.FromInt32(100+2*p)), nil))
		}
	}
	n.Spec.Egress[150].Ports = n.Spec.Egress[150].Ports[:1] // there is room for it
	s := New().Compile(besideInput(nil, n, blockRules(aNet(t, "zz", "policyTypes: [Egress]"), 150, 2, 80)))
	rules := map[string]int{}
	for r := range s.Views[0].Rules.All() {
		rules[r.Policy] += netpol.Cost(r.Ports)
	}
	diff.Error(t, map[string]int{"shop/np": MaxViewPeers/35*35 + 1, "shop/zz": 1}, rules, "rules in the kernel")
	if len(s.Problems) != 2 || s.Problems[0].Path != "spec.egress[117]" || !strings.HasPrefix(s.Problems[0].Message, "this rule and 81 more ") {
		t.Errorf("problems %v", problemTexts(s))
	}
}

// TestKeys: the selection decides the key, not its spelling or policy.
func TestKeys(t *testing.T) {
	key := func(name, to string) policy.Peer {
		s := New().Compile(besideInput(nil, aNet(t, name, `{egress: [{to: [`+to+`]}]}`)))
		if len(s.Problems) > 0 || len(s.Views[0].PeerRules()) != 1 {
			t.Fatalf("%s: %v %v", to, ruleTexts(s.Views[0]), problemTexts(s))
		}
		return s.Views[0].PeerRules()[0].Peer
	}
	seen := map[policy.Peer]int{}
	for i, same := range [][]string{
		{`{podSelector: {matchLabels: {a: b, c: d}}}`, `{podSelector: {matchExpressions: [{key: c, operator: In, values: [d]}, {key: a, operator: In, values: [b, b]}]}}`,
			`{podSelector: {matchLabels: {a: b, c: d}}}, {podSelector: {matchLabels: {c: d, a: b}}}`},
		{`{podSelector: {matchLabels: {a: b}}}, {podSelector: {matchLabels: {c: d}}}`, `{podSelector: {matchLabels: {c: d}}}, {podSelector: {matchLabels: {a: b}}}`},
		{`{podSelector: {}, namespaceSelector: {}}`, `{namespaceSelector: {}}`},
		{`{podSelector: {}}`}, {`{podSelector: {}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}`},
		{`{podSelector: {}, namespaceSelector: {matchLabels: {a: b}}}`}, {`{podSelector: {matchLabels: {a: b}}, namespaceSelector: {}}`},
		{`{ipBlock: {cidr: 10.0.0.0/24}}`, `{ipBlock: {cidr: 10.0.0.9/24}}`, `{ipBlock: {cidr: 10.0.0.128/25}}, {ipBlock: {cidr: 10.0.0.0/25}}`},
		{`{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.0/25]}}`, `{ipBlock: {cidr: 10.0.0.128/25}}`},
		{`{ipBlock: {cidr: "0.0.0.0/0", except: [10.0.0.1/32]}}`}, {`{ipBlock: {cidr: "0.0.0.0/0", except: [10.0.0.3/32]}}`},
	} {
		for _, to := range same {
			p := key("np", to)
			if was, known := seen[p]; known && was != i {
				t.Errorf("%s has the key of another: %v", to, p)
			}
			diff.Equal(t, key("other", same[0]), p, to)
			if len(p.Key) > 256 {
				t.Errorf("the key %s is long", p.Key)
			}
			seen[p] = i
		}
	}
}

// TestSameNetworkPolicies: a change of what is read is seen, and nothing else makes another view.
func TestSameNetworkPolicies(t *testing.T) {
	base := aNet(t, "np", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
	other := base.DeepCopy()
	other.Labels, other.ResourceVersion, other.Generation = map[string]string{"x": "y"}, "7", 3
	other.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	changed := other.DeepCopy()
	changed.Spec.Egress[0].To[0].IPBlock.CIDR = "10.0.0.0/9"
	c := New()
	view := func(n *networkingv1.NetworkPolicy) *policy.View { return c.Compile(besideInput(nil, n)).Views[0] }
	if was := view(base); view(other) != was || view(changed) == was {
		t.Error("what does not count counts, or a change is not seen")
	}
}

// TestIgnoredNetworkPolicies: a NetworkPolicy for another engine alone neither opens anything nor
// limits a pod. Its label may come and go while its spec does not change.
func TestIgnoredNetworkPolicies(t *testing.T) {
	c, n := New(), aNet(t, "np", `egress: [{}]`)
	var got []int
	for _, labels := range []map[string]string{nil, {netpol.IgnoreLabel: netpol.IgnoreValue}, {netpol.IgnoreLabel: "false"}, {netpol.IgnoreLabel: netpol.IgnoreValue}} {
		now := n.DeepCopy()
		now.Labels = labels
		v := c.Compile(besideInput(nil, now)).Views[0]
		got = append(got, len(v.PeerRules()), len(v.NetworkPolicies))
	}
	diff.Error(t, []int{1, 1, 0, 0, 1, 1, 0, 0}, got)
}
