package compile

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
)

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
	in := netLoad(1000, 5000, 250)
	b.Run("full", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s := New().Compile(in); len(s.Views) != 250 || len(s.PeerSets) < 1000 {
				b.Fatal(len(s.Views), len(s.PeerSets))
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
