package compile

import (
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
