package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/fatal"
)

// silent logs nothing.
var silent = slog.New(slog.DiscardHandler)

// at is a time of the tests.
func at(d time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(d) }

// aPolicy is a valid policy.
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

// aBroken is a policy that selects no pod.
func aBroken(namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	p := aPolicy(namespace, name)
	p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"x"}}}
	return p
}

// listed returns policies as a State has them.
func listed(policies ...*v1alpha1.FQDNNetworkPolicy) (list []*v1alpha1.FQDNNetworkPolicy) {
	return append(list, policies...)
}

// refuse makes the API server refuse requests. It returns their number.
func refuse(c *kubefake.Clientset, verb, resource, why string) *atomic.Int32 {
	count := &atomic.Int32{}
	c.PrependReactor(verb, resource, func(clienttest.Action) (bool, runtime.Object, error) {
		count.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(why))
	})
	return count
}

func pod(name string) policy.PodRef {
	return policy.PodRef{Namespace: "shop", Name: name, UID: "uid-" + name}
}

func blocked(policyID, podName string) Finding {
	return Finding{Policy: policyID, Pod: pod(podName), Reason: DNSBlocked, Message: "queries of " + podName + " are dropped"}
}

// kinds are the kinds of policies.
var kinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion().WithKind(v1alpha1.Kind), v1alpha1.GroupVersion().WithKind(v1alpha1.ClusterKind), cnp.Versions()[0].WithKind(cnp.Kind), cnp.Versions()[1].WithKind(cnp.Kind),
}

// policyServer is a dynamic client for policies of all kinds. Unlike the fake beneath it, it counts
// versions, and merges what is applied as an API server does by the schema of the conditions.
type policyServer struct {
	*fake.FakeDynamicClient
	scheme *runtime.Scheme
	types  managedfields.TypeConverter

	mu      sync.Mutex
	applied []string // "namespace/name"
	fail    error    // what requests get
}

func newPolicyServer(t *testing.T, policies ...runtime.Object) *policyServer {
	t.Helper()
	s := &policyServer{scheme: runtime.NewScheme(), types: conditionTypes(t)}
	for _, of := range kinds {
		s.scheme.AddKnownTypeWithName(of, &unstructured.Unstructured{})
		s.scheme.AddKnownTypeWithName(of.GroupVersion().WithKind(of.Kind+"List"), &unstructured.UnstructuredList{})
	}
	var objects []runtime.Object
	for _, p := range policies {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		fatal.If(t, err)
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}
	s.FakeDynamicClient = fake.NewSimpleDynamicClientWithCustomListKinds(s.scheme, nil, objects...)
	s.PrependReactor("patch", "*", s.apply)
	return s
}

// conditionTypes merge objects of all kinds by the schema that Namegate's kinds have for conditions;
// ClusterNetworkPolicy has the same.
func conditionTypes(t *testing.T) managedfields.TypeConverter {
	t.Helper()
	text, err := os.ReadFile("../crds/namegate.io_fqdnnetworkpolicies.yaml")
	fatal.If(t, err)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema spec.Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	fatal.If(t, yaml.Unmarshal(text, &crd))
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	all := map[string]*spec.Schema{}
	for _, kind := range kinds {
		of := (&spec.Schema{}).Typed("object", "").SetProperty("status", status)
		of.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}})
		all[kind.Version+kind.Kind] = of
	}
	types, err := managedfields.NewTypeConverter(all, true)
	fatal.If(t, err)
	return types
}

// apply answers a patch.
func (s *policyServer) apply(action clienttest.Action) (bool, runtime.Object, error) {
	a := action.(clienttest.PatchActionImpl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = append(s.applied, a.Namespace+"/"+a.Name)
	if s.fail != nil {
		return true, nil, s.fail
	}
	patch := &unstructured.Unstructured{}
	if err := json.Unmarshal(a.Patch, patch); err != nil {
		return true, nil, err
	}
	if a.PatchType != types.ApplyPatchType || a.Subresource != "status" || a.PatchOptions.FieldManager != "namegate" || !*a.PatchOptions.Force {
		return true, nil, fmt.Errorf("%s of the subresource %q by %q", a.PatchType, a.Subresource, a.PatchOptions.FieldManager)
	}
	live, err := s.Tracker().Get(a.Resource, a.Namespace, a.Name)
	if err != nil {
		return true, nil, err
	}
	kind := patch.GroupVersionKind()
	fields, err := managedfields.NewDefaultFieldManager(s.types, asIs{s.scheme}, asIs{}, s.scheme, kind, kind.GroupVersion(), "status", nil)
	if err != nil {
		return true, nil, err
	}
	uid := patch.GetUID()
	if patch.SetUID(""); uid != live.(*unstructured.Unstructured).GetUID() {
		return true, nil, apierrors.NewConflict(a.Resource.GroupResource(), a.Name, nil)
	}
	merged, err := fields.Apply(live, patch, a.PatchOptions.FieldManager, true)
	if err != nil {
		return true, nil, err
	}
	u := merged.(*unstructured.Unstructured)
	u.SetResourceVersion(next(u.GetResourceVersion()))
	return true, u, s.Tracker().Update(a.Resource, u, a.Namespace)
}

// asIs converts no object and has no defaults.
type asIs struct{ *runtime.Scheme }

func (asIs) ConvertToVersion(object runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return object, nil
}

func (asIs) Default(runtime.Object) {}

// next returns the version after another.
func next(version string) string {
	n := 0
	_, _ = fmt.Sscan(version, &n)
	return fmt.Sprint(n + 1)
}

func (s *policyServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.applied...)
}

func (s *policyServer) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// change changes a policy, as another program does.
func (s *policyServer) change(t *testing.T, namespace, name string, change func(*v1alpha1.FQDNNetworkPolicy)) {
	t.Helper()
	p := s.get(t, namespace, name)
	p.ResourceVersion = next(p.ResourceVersion)
	change(p)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	fatal.If(t, err)
	fatal.If(t, s.Tracker().Update(v1alpha1.GroupVersionResource(), &unstructured.Unstructured{Object: object}, namespace))
}

// get returns a policy as the server has it.
func (s *policyServer) get(t *testing.T, namespace, name string) *v1alpha1.FQDNNetworkPolicy {
	t.Helper()
	u, err := s.Resource(v1alpha1.GroupVersionResource()).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	fatal.If(t, err)
	p := &v1alpha1.FQDNNetworkPolicy{}
	fatal.If(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p))
	return p
}

// says returns "Status Reason" of a condition.
func says(p *v1alpha1.FQDNNetworkPolicy, kind string) string {
	c := meta.FindStatusCondition(p.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}
