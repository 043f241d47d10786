package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/kube"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/status/companion"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestCompanionsKnowServices: the source's Services, and the Corefile's cluster domain,
// reach the companions.
func TestCompanionsKnowServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, port := "db.shop.svc.cluster.local", int32(443)
		tcp := v1alpha1.ProtocolTCP
		p := &v1alpha1.FQDNNetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Generation: 1, ResourceVersion: "1"},
			Spec:       v1alpha1.FQDNNetworkPolicySpec{Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: &name}}, Ports: []v1alpha1.Port{{Protocol: &tcp, Port: &port}}}}},
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		fatal.If(t, err)
		scheme := runtime.NewScheme()
		fatal.If(t, v1alpha1.AddToScheme(scheme))
		policies := fakedynamic.NewSimpleDynamicClient(scheme, &unstructured.Unstructured{Object: object})
		client := fake.NewClientset(
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{
					{Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(8443)},
				}},
			},
			&networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
				Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}},
			},
		)
		c := &cluster{}
		if c.source, err = kube.New(kube.Options{Client: client, Dynamic: policies, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		if c.reporter, err = status.New(status.Options{
			Client: client, Dynamic: policies, Namespace: "namegate", Node: "n1", Identity: "agent-1", DaemonSet: "agents",
			Companion: true, CompanionPorts: companion.PortsAlways, Endpoint: []netip.Prefix{netip.MustParsePrefix("169.254.20.53/32")}, Log: slog.New(slog.DiscardHandler),
		}); err != nil {
			t.Fatal(err)
		}
		fatal.If(t, c.follow(corefile.Default()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- c.run(ctx, func(rollout.State) {}) }()
		go func() { ended <- c.reporter.Run(ctx) }()
		c.reporter.SetFindings(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		list, err := client.NetworkingV1().NetworkPolicies("shop").List(t.Context(), metav1.ListOptions{})
		fatal.If(t, err)
		var ports []string
		for _, n := range list.Items {
			for _, rule := range n.Spec.Egress {
				for _, p := range rule.Ports {
					ports = append(ports, fmt.Sprint(*p.Protocol, "/", p.Port))
				}
			}
		}
		if want := []string{"UDP/53", "TCP/53", "TCP/443", "TCP/8443"}; !slices.Equal(ports, want) {
			t.Errorf("ports %q, want %q", ports, want)
		}
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
