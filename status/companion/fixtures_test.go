package companion

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// at is a moment of the tests.
func at(d time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(d) }

// aPolicy is one that all of works.
func aPolicy(namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	www := "www.example.org"
	return &v1alpha1.FQDNNetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Generation: 1, ResourceVersion: "1",
		},
		Spec: v1alpha1.FQDNNetworkPolicySpec{Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: &www}}}}},
	}
}

func selecting(p *v1alpha1.FQDNNetworkPolicy, labels map[string]string) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.PodSelector.MatchLabels = labels
	return p
}

// broken is a policy that selects no pod.
func broken(namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	p := aPolicy(namespace, name)
	p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"x"}}}
	return p
}

func byID(policies ...*v1alpha1.FQDNNetworkPolicy) map[string]*v1alpha1.FQDNNetworkPolicy {
	out := map[string]*v1alpha1.FQDNNetworkPolicy{}
	for _, p := range policies {
		out[p.Namespace+"/"+p.Name] = p
	}
	return out
}

// limit is a NetworkPolicy that allows no egress to the pods that it selects.
func limit(namespace, name string, labels map[string]string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("np-" + namespace + "-" + name)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: labels}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		},
	}
}

// withPort makes a policy's rules those of one TCP port.
func withPort(p *v1alpha1.FQDNNetworkPolicy, port int32) *v1alpha1.FQDNNetworkPolicy {
	for i := range p.Spec.Egress {
		p.Spec.Egress[i].Ports = []v1alpha1.Port{{Port: &port}}
	}
	return p
}

func annotated(p *v1alpha1.FQDNNetworkPolicy, value string) *v1alpha1.FQDNNetworkPolicy {
	p.Annotations = map[string]string{Annotation: value}
	return p
}

// clusterLocal is cluster.local.
const clusterLocal fqdn.Name = "\x07cluster\x05local"

// leads is a Service of the namespace shop that leads TCP ports to others.
func leads(name string, ports ...policy.ServicePort) *policy.Service {
	for i := range ports {
		ports[i].Protocol = policy.TCP
	}
	return &policy.Service{Ref: policy.ServiceRef{Namespace: "shop", Name: name}, Ports: ports}
}

// withName adds a name to a policy's first rule.
func withName(p *v1alpha1.FQDNNetworkPolicy, name string) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.Egress[0].Matches = append(p.Spec.Egress[0].Matches, v1alpha1.Match{Name: &name})
	return p
}

var endpoint = []netip.Prefix{netip.MustParsePrefix("169.254.20.53/32"), netip.MustParsePrefix("fd5c:7a1e:93b4::53/128")}

// noPorts lets companions open the endpoint alone.
func noPorts(*v1alpha1.FQDNNetworkPolicy, *networkingv1.NetworkPolicy) (none compile.PodPorts) {
	return none
}

// anyPort lets them open all.
func anyPort(*v1alpha1.FQDNNetworkPolicy, *networkingv1.NetworkPolicy) compile.PodPorts {
	return compile.PodPorts{Numbers: policy.AnyPort}
}

// emitted drains a recorder.
func emitted(r *events.FakeRecorder) (out []string) {
	for len(r.Events) > 0 {
		out = append(out, <-r.Events)
	}
	return out
}

// refuse makes the API server refuse requests. It returns how many there were.
func refuse(c *fake.Clientset, verb, resource, why string) *atomic.Int32 {
	count := &atomic.Int32{}
	c.PrependReactor(verb, resource, func(clienttest.Action) (bool, runtime.Object, error) {
		count.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(why))
	})
	return count
}

// runningPod is a pod of the namespace shop with the label app=cart on a node.
func runningPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "cart"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}
