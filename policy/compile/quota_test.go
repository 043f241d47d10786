package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/diff"
)

// greedyNode is a node with pods of two namespaces. Each pod of the greedy one has a
// NetworkPolicy of its own, of rules that rule makes; the modest one has one for all.
func greedyNode(pods, rules, remote int, rule func(pod, i int) networkingv1.NetworkPolicyEgressRule) Input {
	in := Input{Namespaces: map[string]map[string]string{"greedy": {}, "modest": {}}}
	for _, space := range []string{"greedy", "modest"} {
		p := aPolicy("closed", "")
		p.Namespace = space
		in.Policies = append(in.Policies, p)
	}
	pod := func(space, name string, a netip.Addr) policy.Pod {
		return policy.Pod{PodRef: policy.PodRef{Namespace: space, Name: name, UID: space + name}, Labels: map[string]string{"name": name}, IPs: []netip.Addr{a}, Phase: "Running"}
	}
	for i := range pods {
		p := pod("greedy", fmt.Sprint("pod", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		n := egressTo("greedy", fmt.Sprintf("np%03d", i))
		n.Spec.PodSelector = *labelled("name", p.Name)
		for j := range rules {
			n.Spec.Egress = append(n.Spec.Egress, rule(i, j))
		}
		in.Pods, in.NetworkPolicies = append(in.Pods, p), append(in.NetworkPolicies, n)
	}
	for i := range remote {
		p := pod("far", fmt.Sprint("far", i), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		p.NodeName = "n2"
		in.Remote = append(in.Remote, &p)
	}
	in.Pods = append(in.Pods, pod("modest", "web", addr("10.2.0.1")), pod("modest", "db", addr("10.2.0.2")))
	everywhere := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
	in.NetworkPolicies = append(in.NetworkPolicies, egressTo("modest", "own",
		networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("name", "db")}}},
		networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{everywhere}}))
	return in
}

func notIn(values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "name", Operator: metav1.LabelSelectorOpNotIn, Values: values}}}
}

// TestGreedyNamespace takes nothing from another one, whatever it asks for too much of,
// and costs the others little time.
func TestGreedyNamespace(t *testing.T) {
	block := func(text string, i, j int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf(text, i, j>>8, j&255)}}
	}
	for name, test := range map[string]struct {
		pods, rules, remote int
		rule                func(i, j int) networkingv1.NetworkPolicyEgressRule
	}{
		"sets": {20, 1500, 10, func(i, j int) networkingv1.NetworkPolicyEgressRule {
			return networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{block("11.%d.%d.%d/32", i, j)}}
		}},
		"rules": {20, 3000, 10, func(i, j int) networkingv1.NetworkPolicyEgressRule {
			return networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{block("11.0.%[2]d.%[3]d/32", 0, j)}}
		}},
		"pods": {10, 400, 4000, func(i, j int) networkingv1.NetworkPolicyEgressRule {
			return networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: notIn(fmt.Sprint("x", i, "-", j))}}}
		}},
		"ports": {20, 30, 10, func(i, j int) networkingv1.NetworkPolicyEgressRule {
			rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{block("11.%d.%d.%d/32", i, j)}}
			for p := range int32(netpol.MaxPeerPorts) {
				rule.Ports = append(rule.Ports, netPort("", ptr(intstr.FromInt32(3*p+1)), ptr(3*p+2)))
			}
			return rule
		}},
		"networks": {10, 40, 10, func(i, j int) networkingv1.NetworkPolicyEgressRule {
			var all networkingv1.NetworkPolicyEgressRule
			for k := range 100 {
				b := block("2001:db8:%x:%x::/64", i, j)
				b.IPBlock.CIDR, b.IPBlock.Except = fmt.Sprintf("2001:db8:%x:%x::/64", i*64+j, k*2), []string{fmt.Sprintf("2001:db8:%x:%x::1/128", i*64+j, k*2)}
				all.To = append(all.To, b)
			}
			return all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := greedyNode(test.pods, test.rules, test.remote, test.rule)
			if name == "rules" { // lists that differ in one rule have chains of their own
				for i, n := range in.NetworkPolicies[:test.pods] {
					n.Spec.Egress = append(n.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{block("12.%d.%d.%d/32", i, 0)}})
				}
			}
			c := New()
			s := c.Compile(in)
			rules, entries, lists := 0, 0, map[**policy.Rule]bool{}
			for _, v := range s.Views {
				if own := v.PeerRules(); len(own) > 0 && !lists[&own[0]] {
					lists[&own[0]] = true
					for _, r := range own {
						rules += netpol.Cost(r.Ports)
					}
				}
			}
			for _, set := range s.PeerSets {
				entries += len(set.Addrs) + len(set.Networks)
			}
			if len(s.PeerSets) > MaxPeerSets || rules > MaxPeerRules || entries > peers.MaxEntries {
				t.Errorf("%d sets, %d rules, %d entries", len(s.PeerSets), rules, entries)
			}
			if len(s.Problems) == 0 || slices.ContainsFunc(s.Problems, func(p policy.Problem) bool { return !strings.Contains(p.Object, " greedy/") }) {
				t.Errorf("%d problems: %.300v", len(s.Problems), problemTexts(s))
			}
			web := s.View(addr("10.2.0.1"))
			if peersAt(s, web, addr("10.2.0.2"), policy.TCP, 80) == nil || peersAt(s, web, addr("10.1.0.1"), policy.TCP, 80) == nil {
				t.Error("the modest namespace has no room")
			}
			if first := s.View(addr("10.0.0.0")); len(first.PeerRules()) == 0 {
				t.Error("the greedy namespace has nothing")
			}
			in.Pods = slices.Clone(in.Pods)
			in.Pods[len(in.Pods)-1].IPs = []netip.Addr{addr("10.2.0.3")}
			begin := time.Now()
			next := c.Compile(in)
			t.Logf("%d sets, %d rules, %d entries; a change takes %v", len(s.PeerSets), rules, entries, time.Since(begin))
			diff.Equal(t, s.View(addr("10.0.0.0")), next.View(addr("10.0.0.0")), "a view that stays")
			in.Policies = in.Policies[1:]
			if s = c.Compile(in); len(s.Problems) > 0 || len(c.sets) > 4 {
				t.Errorf("after the greedy one is gone: %d sets, %.300v", len(c.sets), problemTexts(s))
			}
		})
	}
}

func sameRule(a, b *policy.Rule) bool {
	return a.Peer == b.Peer && a.Ports == b.Ports && a.Policy == b.Policy && a.Path == b.Path
}

// TestHistoriesWithLittleRoom: one compiler equals a new one while room comes and goes.
func TestHistoriesWithLittleRoom(t *testing.T) {
	cut := 0
	for seed := range uint64(60) {
		d := netDice{rand.New(rand.NewPCG(seed, 31))}
		room := cost{sets: 1 + d.IntN(6), rules: 1 + d.IntN(12), entries: 1 + d.IntN(60)}
		in, c := d.input(), New()
		c.room, in.EnforceNetworkPolicies = room, seed%2 == 1
		for range 30 {
			in = d.change(in)
		}
		for step := range 20 {
			for range d.IntN(4) {
				in = d.change(in)
			}
			fresh, wide := New(), New().Compile(in)
			fresh.room = room
			s := c.Compile(in)
			diff.Fatal(t, netDump(fresh.Compile(in)), netDump(s), "seed", seed, "step", step)
			w := peers.NewWeigher(c.index)
			for _, l := range c.asked {
				now := peers.NewSet(l.Spec)
				if now.Weigh(w); l.Weight < now.Weight {
					t.Fatalf("seed %d, step %d: %v weighs %d, counted %d", seed, step, l.Spec.Peer, now.Weight, l.Weight)
				}
			}
			if len(s.PeerSets) > room.sets {
				t.Fatalf("seed %d, step %d: %d sets in room for %d", seed, step, len(s.PeerSets), room.sets)
			}
			for _, v := range s.Views {
				all, rules := wide.ViewOf(v.Pod.PodRef).PeerRules(), v.PeerRules()
				if in := v.Ingress; in != nil {
					all, rules = slices.Concat(all, wide.ViewOf(v.Pod.PodRef).Ingress.Namespace), slices.Concat(rules, in.Namespace)
				}
				for _, r := range rules {
					if r.Peer.Kind != policy.PeerAnywhere && s.PeerSet(r.Peer) == nil {
						t.Fatalf("seed %d, step %d: no set %v", seed, step, r.Peer)
					}
					if !slices.ContainsFunc(all, func(o *policy.Rule) bool { return sameRule(r, o) }) {
						t.Fatalf("seed %d, step %d: %v is not allowed at all", seed, step, r)
					}
				}
				if len(rules) < len(all) {
					cut++
				}
			}
		}
	}
	if cut < 100 {
		t.Errorf("%d views were cut: that says little", cut)
	}
}

// TestPortsAreWeighed: a set that the kernel would not take has no room, and takes no
// other's room.
func TestPortsAreWeighed(t *testing.T) {
	const maxSetPorts = 1 << 20 // of package peers
	var ports []policy.NamedPort
	for i := range policy.MaxNamedPorts {
		ports = append(ports, policy.NamedPort{Name: "a", Protocol: policy.TCP, Port: uint16(i + 1)})
	}
	a := intstr.FromString("a")
	for name, test := range map[string]struct {
		pods, want int
		rule       networkingv1.NetworkPolicyEgressRule
	}{
		"by terms": {maxSetPorts / policy.MaxNamedPorts, 0, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: labelled("team", "b")}}}},
		"by names": {maxSetPorts / policy.MaxNamedPorts, 0, networkingv1.NetworkPolicyEgressRule{}},
		"fewer":    {maxSetPorts/policy.MaxNamedPorts - 1, maxSetPorts - policy.MaxNamedPorts, networkingv1.NetworkPolicyEgressRule{}},
	} {
		t.Run(name, func(t *testing.T) {
			test.rule.Ports = []networkingv1.NetworkPolicyPort{{Port: &a}}
			in := besideInput(nil, egressTo("shop", "n", test.rule), egressTo("lone", "n", networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: labelled("team", "b")}}}))
			for i := range test.pods {
				p := farPod("bank/p", "", netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String())
				p.Ports = ports
				in.Remote = append(in.Remote, p)
			}
			other, closed := aPod("other", "", "10.0.0.2"), aPolicy("closed", "")
			other.Namespace, closed.Namespace = "lone", "lone"
			in.Pods, in.Policies = append(in.Pods, other), append(in.Policies, closed)
			s, got := New().Compile(in), 0
			for _, set := range s.PeerSets {
				got += len(set.Ports)
			}
			if got != test.want || (len(s.Problems) == 0) != (test.want > 0) {
				t.Errorf("%d ports, %v", got, problemTexts(s))
			}
			if peersAt(s, s.View(addr("10.0.0.2")), addr("10.1.0.0"), policy.TCP, 1) == nil {
				t.Error("the other namespace has no room")
			}
		})
	}
}

// TestRequirementsAreWeighed: each requirement of a selector has its cost, and an
// ordinary selector costs one for each pod.
func TestRequirementsAreWeighed(t *testing.T) {
	var remote []*policy.Pod
	for i := range 2000 {
		remote = append(remote, farPod("bank/p", "app=db", netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}).String()))
	}
	withPort(remote[7], "sql", policy.TCP, 5432)
	withPort(remote[9], "sql", policy.UDP, 5432)
	absent := func(n int) *metav1.LabelSelector {
		s := &metav1.LabelSelector{}
		for i := range n {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		return s
	}
	everywhere, name := &metav1.LabelSelector{}, intstr.FromString("sql")
	all := len(remote) + 1 // and web, which asks
	for what, test := range map[string]struct {
		pods, spaces *metav1.LabelSelector
		ports        []networkingv1.NetworkPolicyPort
		weight       int
	}{
		"no requirement":           {everywhere, everywhere, nil, 1 + all},
		"a few":                    {absent(7), everywhere, nil, 1 + all},
		"many":                     {absent(800), everywhere, nil, 1 + 101*all},
		"of namespaces":            {everywhere, absent(800), nil, 1 + 201*all},
		"more than a node has":     {absent(30000), everywhere, nil, 1 + 3751*all},
		"of namespaces, too many":  {everywhere, absent(30000), nil, 1 + 7501*all},
		"for a port that two have": {absent(800), everywhere, []networkingv1.NetworkPolicyPort{{Port: &name}}, 2 + 2*26},
	} {
		t.Run(what, func(t *testing.T) {
			c := New()
			s := c.Compile(besideInput(remote, egressTo("shop", "n", networkingv1.NetworkPolicyEgressRule{
				To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: test.spaces, PodSelector: test.pods}}, Ports: test.ports})))
			diff.Equal(t, test.weight, c.asked[0].Weight, "weighs")
			if fits := test.weight <= peers.MaxEntries; fits != (len(s.PeerSets) == 1) || fits != (len(s.Problems) == 0) {
				t.Errorf("%d sets, %v", len(s.PeerSets), problemTexts(s))
			}
		})
	}
}

// TestManyNamesInOneRule cost only their own ports, not every port of a pod.
func TestManyNamesInOneRule(t *testing.T) {
	var remote []*policy.Pod
	var ports []policy.NamedPort
	for i := range uint16(8) {
		ports = append(ports, policy.NamedPort{Name: "zzzzzz", Protocol: policy.TCP, Port: 80 + i})
	}
	for i := range 20000 {
		p := farPod("bank/p", "", netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}).String())
		p.Ports = ports
		remote = append(remote, p)
	}
	rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}
	for i := range 50000 {
		name := intstr.FromString(fmt.Sprintf("a%05d", i))
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &name})
	}
	name := intstr.FromString("zzzzzz")
	rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &name})
	var s *policy.Snapshot
	if took := spent(t, func() { s = New().Compile(besideInput(remote, egressTo("shop", "n", rule))) }); took > 30*time.Second {
		t.Errorf("the compile took %v", took)
	}
	if len(s.Problems) > 0 || len(s.PeerSets[0].Ports) != 160000 {
		t.Errorf("%d ports, %v", len(s.PeerSets[0].Ports), problemTexts(s))
	}
}
