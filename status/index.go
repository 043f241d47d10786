package status

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// key identifies a policy of any kind.
type key struct {
	schema.GroupVersionResource
	namespace, name string
}

// index is the policies of a State.
type index struct {
	State
	policies map[key]metav1.Object
	keys     map[string]key              // by id
	problems map[string][]policy.Problem // by the object's name in problems
}

func newIndex(s *State) *index {
	x := &index{State: *s, policies: map[key]metav1.Object{}, keys: map[string]key{}, problems: map[string][]policy.Problem{}}
	add := func(of schema.GroupVersionResource, p metav1.Object) {
		k := key{of, p.GetNamespace(), p.GetName()}
		x.policies[k], x.keys[k.id()] = p, k
	}
	for _, p := range s.Policies {
		add(v1alpha1.GroupVersionResource(), p)
	}
	for _, p := range s.ClusterPolicies {
		add(v1alpha1.ClusterGroupVersionResource(), p)
	}
	for _, p := range s.NodePolicies {
		add(v1alpha1.NodeGroupVersionResource(), p)
	}
	for _, p := range s.ClusterNetworkPolicies {
		add(cnp.Resource(), p)
	}
	for _, p := range s.Problems {
		x.problems[p.Object] = append(x.problems[p.Object], p)
	}
	for _, p := range s.Compiled {
		if p.Reason == policy.ReasonNoRoom && p.Pod.Name == "" && !strings.HasPrefix(p.Object, ofNamespace) {
			x.problems[p.Object] = append(x.problems[p.Object], p)
		}
	}
	return x
}

// ofNamespace begins the names of namespaces' policies in problems.
const ofNamespace = "policy "

// object returns how problems name a policy.
func (k key) object() string {
	switch k.GroupVersionResource {
	case v1alpha1.GroupVersionResource():
		return ofNamespace + k.id()
	case v1alpha1.NodeGroupVersionResource():
		return nnp.Object(k.name)
	case cnp.Resource():
		return cnp.Object(k.name)
	}
	return cfqdnnp.Object(k.name)
}

// id returns how findings name a policy.
func (k key) id() string {
	switch k.GroupVersionResource {
	case v1alpha1.GroupVersionResource():
		return k.namespace + "/" + k.name
	case v1alpha1.NodeGroupVersionResource():
		return nnp.ID(k.name)
	case cnp.Resource():
		return cnp.ID(k.name)
	}
	return k.name
}

// unchanged tells whether a State has the same policies and problems, at next to no cost: a source
// shares the lists that it did not change.
func (x *index) unchanged(s *State) bool {
	return shared(x.Policies, s.Policies) && shared(x.NetworkPolicies, s.NetworkPolicies) && shared(x.ClusterPolicies, s.ClusterPolicies) && shared(x.NodePolicies, s.NodePolicies) && shared(x.ClusterNetworkPolicies, s.ClusterNetworkPolicies) &&
		reflect.DeepEqual(x.Problems, s.Problems) && reflect.DeepEqual(x.Compiled, s.Compiled)
}

// shared tells whether two slices are one.
func shared[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// changed returns the policies that differ from before in what conditions depend on, and those that
// are in one of both alone.
func (x *index) changed(before *index) (keys []key) {
	beside, besideBefore := x.networkPolicies(), before.networkPolicies()
	for k, p := range x.policies {
		last := before.policies[k]
		if last == nil || last.GetUID() != p.GetUID() || last.GetResourceVersion() != p.GetResourceVersion() ||
			!reflect.DeepEqual(before.problems[k.object()], x.problems[k.object()]) || !slices.Equal(beside[k.namespace], besideBefore[k.namespace]) {
			keys = append(keys, k)
		}
	}
	for k := range before.policies {
		if x.policies[k] == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// networkPolicies returns the NetworkPolicies by namespace.
func (s *State) networkPolicies() map[string][]*networkingv1.NetworkPolicy {
	out := map[string][]*networkingv1.NetworkPolicy{}
	for _, n := range s.NetworkPolicies {
		out[n.Namespace] = append(out[n.Namespace], n)
	}
	return out
}

// subject is a policy of any kind and its conditions. The first of want is the condition that says
// whether the policy is accepted.
type subject struct {
	metav1.Object
	have, want []metav1.Condition
}

// subject returns a policy and the conditions that it should have by the findings of all nodes; nil
// if there is no such policy.
func (x *index) subject(k key, o *Options, entries []entry) *subject {
	problems := x.problems[k.object()]
	switch p := x.policies[k].(type) {
	case *v1alpha1.FQDNNetworkPolicy:
		return &subject{p, p.Status.Conditions, conditionsOf(p, slices.Concat(problems, fqdnnp.Validate(p)), entries, x.beside(p, o.Endpoint))}
	case *v1alpha1.ClusterFQDNNetworkPolicy:
		problems = slices.Concat(problems, cfqdnnp.Validate(p))
		return &subject{p, p.Status.Conditions, clusterConditionsOf(p.Spec.Enforcement, p.Generation, problems, entries)}
	case *v1alpha1.NodeNetworkPolicy:
		problems = slices.Concat(problems, nnp.Validate(p))
		if !o.Nodes {
			problems = append(problems, nnp.NotEnabled(p)...)
		}
		return &subject{p, p.Status.Conditions, nodeConditionsOf(p, problems, entries)}
	case *unstructured.Unstructured:
		var has struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		// Conditions that cannot be read are another's: ours are written as if there were none.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": p.Object["status"]}, &has)
		return &subject{p, has.Status.Conditions, standardConditionsOf(p.GetGeneration(), slices.Concat(cnp.Read(p).Problems, problems), entries)}
	}
	return nil
}

// beside says which NetworkPolicies another engine needs so that it does not deny what a policy allows,
// "" if none.
func (x *index) beside(p *v1alpha1.FQDNNetworkPolicy, endpoint netpolicyfor.Serving) string {
	all := netpolicyfor.Of(p, netpolicyfor.Services{}).Beside(x.NetworkPolicies, endpoint)
	if len(all) == 0 {
		return ""
	}
	const says = "NetworkPolicies limit the pods of the policy: another engine that enforces them denies what only this policy allows. " +
		"kubectl namegate explain POD NAME prints the NetworkPolicy for it, also where a Service leads to another port"
	if text := netpolicyfor.Text(all); len(text) < maxConditionBytes/2 {
		return says + "; kubectl apply -f - takes that of the policy's ports: " + text
	}
	return says
}

// kind returns the kind of a policy.
func (k key) kind() schema.GroupVersionKind {
	name := map[string]string{v1alpha1.Resource: v1alpha1.Kind, v1alpha1.ClusterResource: v1alpha1.ClusterKind, v1alpha1.NodeResource: v1alpha1.NodeKind, cnp.Resource().Resource: cnp.Kind}[k.Resource]
	return k.GroupVersion().WithKind(name)
}

// reference returns the reference of events to a policy.
func (k key) reference(p metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: k.GroupVersion().String(), Kind: k.kind().Kind, Namespace: k.namespace, Name: k.name, UID: p.GetUID()}
}
