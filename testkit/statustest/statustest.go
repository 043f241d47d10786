// Package statustest holds objects that the tests of package status and of its subpackages
// share.
package statustest

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// Silent logs nothing.
var Silent = slog.New(slog.DiscardHandler)

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

// ByID returns policies by "namespace/name".
func ByID(policies ...*v1alpha1.FQDNNetworkPolicy) map[string]*v1alpha1.FQDNNetworkPolicy {
	out := map[string]*v1alpha1.FQDNNetworkPolicy{}
	for _, p := range policies {
		out[p.Namespace+"/"+p.Name] = p
	}
	return out
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
