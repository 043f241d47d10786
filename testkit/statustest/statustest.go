// Package statustest holds objects that the tests of package status and of its subpackages
// share.
package statustest

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// ClusterLocal is cluster.local.
const ClusterLocal fqdn.Name = "\x07cluster\x05local"

// Silent logs nothing.
var Silent = slog.New(slog.DiscardHandler)

// Endpoint is the destinations that companions open.
var Endpoint = []netip.Prefix{netip.MustParsePrefix("169.254.20.53/32"), netip.MustParsePrefix("fd5c:7a1e:93b4::53/128")}

// At is a time of the tests.
func At(d time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(d) }

// Policy is a valid policy.
func Policy(namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	www := "www.example.org"
	return &v1alpha1.FQDNNetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Generation: 1, ResourceVersion: "1",
		},
		Spec: v1alpha1.FQDNNetworkPolicySpec{Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: &www}}}}},
	}
}

// Broken is a policy that selects no pod.
func Broken(namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	p := Policy(namespace, name)
	p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"x"}}}
	return p
}

// Selecting makes a policy select pods by labels.
func Selecting(p *v1alpha1.FQDNNetworkPolicy, labels map[string]string) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.PodSelector.MatchLabels = labels
	return p
}

// WithPort gives a policy's rules one TCP port.
func WithPort(p *v1alpha1.FQDNNetworkPolicy, port int32) *v1alpha1.FQDNNetworkPolicy {
	tcp := v1alpha1.ProtocolTCP
	for i := range p.Spec.Egress {
		p.Spec.Egress[i].Ports = []v1alpha1.Port{{Protocol: &tcp, Port: &port}}
	}
	return p
}

// WithName adds a name to a policy's first rule.
func WithName(p *v1alpha1.FQDNNetworkPolicy, name string) *v1alpha1.FQDNNetworkPolicy {
	p.Spec.Egress[0].Matches = append(p.Spec.Egress[0].Matches, v1alpha1.Match{Name: &name})
	return p
}

// Annotated sets a policy's annotation for companions.
func Annotated(p *v1alpha1.FQDNNetworkPolicy, value string) *v1alpha1.FQDNNetworkPolicy {
	p.Annotations = map[string]string{"namegate.io/companion": value}
	return p
}

// ByID returns policies by "namespace/name".
func ByID(policies ...*v1alpha1.FQDNNetworkPolicy) map[string]*v1alpha1.FQDNNetworkPolicy {
	out := map[string]*v1alpha1.FQDNNetworkPolicy{}
	for _, p := range policies {
		out[p.Namespace+"/"+p.Name] = p
	}
	return out
}

// Limit is a NetworkPolicy that allows no egress to the pods that it selects.
func Limit(namespace, name string, labels map[string]string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("np-" + namespace + "-" + name)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: labels}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		},
	}
}

// Service is a Service of the namespace shop that maps TCP ports to target ports.
func Service(name string, ports ...policy.ServicePort) *policy.Service {
	for i := range ports {
		ports[i].Protocol = policy.TCP
	}
	return &policy.Service{Ref: policy.ServiceRef{Namespace: "shop", Name: name}, Ports: ports}
}

// Refuse makes the API server refuse requests. It returns their number.
func Refuse(c *fake.Clientset, verb, resource, why string) *atomic.Int32 {
	count := &atomic.Int32{}
	c.PrependReactor(verb, resource, func(clienttest.Action) (bool, runtime.Object, error) {
		count.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(why))
	})
	return count
}
