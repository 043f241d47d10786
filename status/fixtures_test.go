package status

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

func pod(name string) policy.PodRef {
	return policy.PodRef{Namespace: "shop", Name: name, UID: "uid-" + name}
}

func blocked(policyID, podName string) Finding {
	return Finding{Policy: policyID, Pod: pod(podName), Reason: DNSBlocked, Message: "queries of " + podName + " are dropped"}
}

// policyServer is a dynamic client for policies. Unlike the fake beneath it, it counts
// versions, and refuses a patch of another version than it has.
type policyServer struct {
	*fake.FakeDynamicClient

	mu       sync.Mutex
	versions map[string]int
	patches  []string // "namespace/name"
	fail     error    // what patches get
}

func newPolicyServer(t *testing.T, policies ...*v1alpha1.FQDNNetworkPolicy) *policyServer {
	scheme := runtime.NewScheme()
	fatal.If(t, v1alpha1.AddToScheme(scheme))
	var objects []runtime.Object
	s := &policyServer{versions: map[string]int{}}
	for _, p := range policies {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		fatal.If(t, err)
		objects = append(objects, &unstructured.Unstructured{Object: object})
		s.versions[p.Namespace+"/"+p.Name] = 1
	}
	s.FakeDynamicClient = fake.NewSimpleDynamicClient(scheme, objects...)
	s.PrependReactor("patch", v1alpha1.Resource, s.patch)
	return s
}

// patch checks the version, and makes the next one part of the patch.
func (s *policyServer) patch(action clienttest.Action) (bool, runtime.Object, error) {
	a := action.(clienttest.PatchActionImpl)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := a.Namespace + "/" + a.Name
	s.patches = append(s.patches, id)
	if s.fail != nil {
		return true, nil, s.fail
	}
	var patch map[string]any
	if err := json.Unmarshal(a.Patch, &patch); err != nil {
		return true, nil, err
	}
	meta := patch["metadata"].(map[string]any)
	if meta["resourceVersion"] != fmt.Sprint(s.versions[id]) {
		return true, nil, apierrors.NewConflict(v1alpha1.GroupVersionResource().GroupResource(), a.Name, nil)
	}
	if a.Subresource != "status" {
		return true, nil, fmt.Errorf("subresource %q is written", a.Subresource)
	}
	s.versions[id]++
	meta["resourceVersion"] = fmt.Sprint(s.versions[id])
	text, err := json.Marshal(patch)
	if err != nil {
		return true, nil, err
	}
	a.Patch = text
	return clienttest.ObjectReaction(s.Tracker())(a)
}

func (s *policyServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.patches...)
}

func (s *policyServer) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
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
