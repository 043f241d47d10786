package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestServices(t *testing.T) {
	balanced := aService("shop", "web", "10.96.0.9", "2001:db8:9::9")
	balanced.Spec.ExternalIPs = []string{"198.51.100.1", "::ffff:10.96.0.9"}
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {Hostname: "lb.example.org"}}
	old := aService("shop", "old", "")
	old.Spec.ClusterIP, old.Spec.ClusterIPs = "10.96.0.3", nil
	named := aService("shop", "named", "")
	named.Spec.Type, named.Spec.ExternalName = corev1.ServiceTypeExternalName, "www.example.org"
	broken := aService("shop", "broken", "10.96.0", "10.96.0.4")
	broken.Spec.ExternalIPs = []string{"x"}
	broken.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "y"}}
	var entries []*serviceEntry
	for _, s := range []*corev1.Service{balanced, old, named, broken, aService("shop", "headless", "None")} {
		entries = append(entries, readService(s, nil))
	}
	got, problems := listServices(entries)
	want := addrs("10.96.0.3", "10.96.0.4", "10.96.0.9", "198.51.100.1", "203.0.113.1", "2001:db8:9::9")
	if diff := cmp.Diff(want, got, addrsByValue); diff != "" {
		t.Error(diff)
	}
	const wrong = "Unreadable spec.clusterIPs[0]; Unreadable spec.externalIPs[0]; Unreadable status.loadBalancer.ingress[0].ip"
	if got := problemTexts(problems, "service shop/broken"); got != wrong {
		t.Errorf("problems %q", got)
	}
	if readService(aPod("x"), nil) != nil {
		t.Error("a pod was read as a Service")
	}
}
