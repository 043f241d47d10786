package compile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// load is a cluster's policies and a node's pods: each of the namespaces has an
// equal share of both, and each pod is selected by a fifth of its namespace's.
func load(policies, pods, namespaces int) Input {
	var in Input
	for i := range policies {
		p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("ns%d", i%namespaces), Name: fmt.Sprintf("policy-%05d", i),
		}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app%d", i/namespaces%5)}
		p.Spec.Egress = []v1alpha1.EgressRule{
			on(aRule(fmt.Sprintf("api%d.example.org", i), fmt.Sprintf("www%d.example.org", i), "shared.example.org",
				fmt.Sprintf("*.zone%d.example.org", i), fmt.Sprintf("w*-%d.cdn.test", i%100)), tcp(443)),
			on(aRule(fmt.Sprintf("**.deep%d.example.org", i%500)), tcp(443), tcp(int32(8000+i%10))),
		}
		in.Policies = append(in.Policies, p)
	}
	for i := range pods {
		in.Pods = append(in.Pods, policy.Pod{
			PodRef: policy.PodRef{Namespace: fmt.Sprintf("ns%d", i%namespaces), Name: fmt.Sprintf("pod-%04d", i), UID: fmt.Sprint(i)},
			Labels: map[string]string{"app": fmt.Sprintf("app%d", i/namespaces%5), "hash": fmt.Sprint(i)},
			IPs:    []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
		})
	}
	return in
}

func BenchmarkDecide(b *testing.B) {
	s := New().Compile(load(10000, 250, 1))
	v := s.Views[0]
	for _, q := range []string{
		"api5.example.org", "shared.example.org", "a.zone5.example.org", "w1-5.cdn.test", "x.y.deep5.example.org",
		"nothing.example.com", "a.b.c.d.e.f.g.h.nothing.example.org",
	} {
		n := policytest.Name(q)
		b.Run(fmt.Sprintf("%s=%d", q, len(v.Decide(n).Matches)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.Decide(n)
			}
		})
	}
}

// manyOf is policies with MaxViewMatches matches that cover one name.
func manyOf(pattern func(i int) string, ports int) []*v1alpha1.FQDNNetworkPolicy {
	var out []*v1alpha1.FQDNNetworkPolicy
	for k := range MaxViewMatches / rulesEach / matchesEach {
		p := aPolicy(fmt.Sprintf("p%03d", k), "")
		for r := range rulesEach {
			var texts []string
			for m := range matchesEach {
				texts = append(texts, pattern((k*rulesEach+r)*matchesEach+m))
			}
			p.Spec.Egress = append(p.Spec.Egress, on(aRule(texts...), tcp(int32(1+(k*rulesEach+r)%ports))))
		}
		out = append(out, p)
	}
	return out
}

func BenchmarkManyMatches(b *testing.B) {
	long := strings.Repeat("a", 60)
	var globs []string
	for i := 1; i < 60; i++ {
		for j := 1; i+j < 60; j++ {
			globs = append(globs, long[:i]+"*"+long[:j])
		}
	}
	for name, pattern := range map[string]func(int) string{
		"exact": func(int) string { return long + ".n7.test" },
		"star":  func(int) string { return "*.n7.test" },
		"globs": func(at int) string {
			return globs[at%len(globs)] + "." + []string{"n*", "*n*", "*", "n7*", "*7"}[at/len(globs)%5] + ".test"
		},
	} {
		for _, ports := range []int{1, 256} {
			s := New().Compile(Input{Policies: manyOf(pattern, ports), Pods: []policy.Pod{aPod("web", "x", "10.0.0.1")}})
			v := s.Views[0]
			n := policytest.Name(long + ".n7.test")
			run := func(what string, f func()) {
				b.Run(fmt.Sprintf("%s/ports=%d/%s", name, ports, what), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
				})
			}
			run("Decide", func() { v.Decide(n) })
			d := v.Decide(n)
			b.Log(len(d.Matches), len(d.Openings(60)))
			run("Openings", func() { d.Openings(60) })
			run("LongestTTL", func() { d.LongestTTL() })
		}
	}
}

// netLoad is a node's part of a cluster of 50 namespaces: NetworkPolicies whose peers are
// pods of their own namespace, of others and of all, blocks, and named ports.
func netLoad(policies, remote, local int) Input {
	in := load(50, local, 50)
	in.Namespaces = map[string]map[string]string{}
	for i := range 50 {
		in.Namespaces[fmt.Sprintf("ns%d", i)] = map[string]string{"team": fmt.Sprint(i % 7), "kubernetes.io/metadata.name": fmt.Sprintf("ns%d", i)}
		in.Policies[i].Spec.PodSelector.MatchLabels = nil
	}
	for i := range remote {
		in.Remote = append(in.Remote, &policy.Pod{
			PodRef: policy.PodRef{Namespace: fmt.Sprintf("ns%d", i%50), Name: fmt.Sprintf("far-%05d", i), UID: fmt.Sprint("far", i)}, NodeName: "far", Phase: "Running",
			Labels: map[string]string{"app": fmt.Sprintf("app%d", i/50%20), "tier": fmt.Sprint(i % 3), "pod-template-hash": fmt.Sprint(i / 10), "name": fmt.Sprint(i)},
			IPs:    []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})},
			Ports:  []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: uint16(8000 + i%10)}},
		})
	}
	for i := range policies {
		n := &networkingv1.NetworkPolicy{}
		n.Namespace, n.Name = fmt.Sprintf("ns%d", i%50), fmt.Sprintf("np-%04d", i)
		if i%4 > 0 {
			n.Spec.PodSelector = *labelled("app", fmt.Sprintf("app%d", i/50%5))
		}
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		app, team := labelled("app", fmt.Sprintf("app%d", i/50)), labelled("team", fmt.Sprint(i%7))
		n.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{{PodSelector: app}}, Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromInt32(int32(5000 + i%10)))}}},
			{To: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("tier", fmt.Sprint(i%3)), NamespaceSelector: team}, {PodSelector: labelled("name", fmt.Sprint(i)), NamespaceSelector: labelled("team", "3")}}},
			{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: team, PodSelector: app}}, Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromString("http"))}}},
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "169.254.169.254/32"}}}}},
		}
		in.NetworkPolicies = append(in.NetworkPolicies, n)
	}
	return in
}

// BenchmarkCompileNetworkPolicies compiles 1,000 NetworkPolicies beside 5,000 pods of
// other nodes and 250 of this one: everything, and the change of one thing.
func BenchmarkCompileNetworkPolicies(b *testing.B) {
	b.Run("selected", func(b *testing.B) { compileNetworkPolicies(b, netLoad(1000, 5000, 250)) })
	b.Run("all", func(b *testing.B) {
		in := netLoad(1000, 5000, 250)
		in.Policies, in.EnforceNetworkPolicies = nil, true
		for i, n := range in.NetworkPolicies {
			n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
			for _, rule := range n.DeepCopy().Spec.Egress {
				for _, peer := range rule.To { // a thousand sets more, for which there is room
					if peer.PodSelector != nil && peer.NamespaceSelector == nil {
						peer.PodSelector.MatchLabels["tier"] = fmt.Sprint((i + 1) % 3)
					}
				}
				n.Spec.Ingress = append(n.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: rule.To, Ports: rule.Ports})
			}
		}
		for i := range in.Pods {
			in.Pods[i].Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: uint16(8000 + i%3)}}
		}
		compileNetworkPolicies(b, in)
	})
}

func compileNetworkPolicies(b *testing.B, in Input) {
	b.Run("full", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s := New().Compile(in); len(s.Views) != 250 || len(s.PeerSets) < 1000 || len(s.Problems) > 0 {
				b.Fatal(len(s.Views), len(s.PeerSets), len(s.Problems))
			}
		}
	})
	for what, change := range map[string]func(i int){
		"nothing": func(int) {},
		"label": func(i int) {
			p := *in.Remote[777]
			p.Labels = map[string]string{"app": fmt.Sprint("app", i%2), "tier": fmt.Sprint(i % 3)}
			in.Remote[777] = &p
		},
		"policy": func(i int) {
			n := in.NetworkPolicies[77].DeepCopy()
			n.Spec.Egress[0].Ports[0].Port = ptr(intstr.FromInt32(int32(i % 2)))
			in.NetworkPolicies[77] = n
		},
		"ingress": func(i int) {
			n := in.NetworkPolicies[77].DeepCopy()
			n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromInt32(int32(i % 2)))}}}}
			in.NetworkPolicies[77] = n
		},
		"own pod": func(i int) {
			in.Pods[33].Labels = map[string]string{"app": fmt.Sprint("app", i%2)}
		},
		"namespace": func(i int) {
			all := map[string]map[string]string{}
			for name, set := range in.Namespaces {
				all[name] = set
			}
			all["ns7"] = map[string]string{"team": fmt.Sprint(i % 7)}
			in.Namespaces = all
		},
		"100 pods": func(i int) {
			for k := range 100 {
				p := *in.Remote[k]
				p.Labels = map[string]string{"app": fmt.Sprint("app", i%2), "tier": fmt.Sprint(i % 3)}
				in.Remote[k] = &p
			}
		},
		"all pods": func(i int) {
			for k := range in.Remote {
				p := *in.Remote[k]
				in.Remote[k] = &p
			}
		},
	} {
		b.Run(what, func(b *testing.B) {
			c := New()
			c.Compile(in)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change(i)
				c.Compile(in)
			}
		})
	}
}
