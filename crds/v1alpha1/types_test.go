package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	fatal.If(t, AddToScheme(s))
	for kind, want := range map[string]runtime.Object{
		Kind: &FQDNNetworkPolicy{}, Kind + "List": &FQDNNetworkPolicyList{},
		ClusterKind: &ClusterFQDNNetworkPolicy{}, ClusterKind + "List": &ClusterFQDNNetworkPolicyList{},
		NodeKind: &NodeNetworkPolicy{}, NodeKind + "List": &NodeNetworkPolicyList{},
	} {
		got, err := s.New(GroupVersion().WithKind(kind))
		if err != nil || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is %T, %v", kind, got, err)
		}
	}
	diff.Equal(t, "namegate.io/v1alpha1, Resource=fqdnnetworkpolicies", GroupVersionResource().String())
	diff.Equal(t, "namegate.io/v1alpha1, Resource=clusterfqdnnetworkpolicies", ClusterGroupVersionResource().String())
	diff.Equal(t, "namegate.io/v1alpha1, Resource=nodenetworkpolicies", NodeGroupVersionResource().String())
}

// TestJSON: unset fields stay unset, so that a manifest survives a round trip through
// these types.
func TestJSON(t *testing.T) {
	roundTrip[FQDNNetworkPolicy](t,
		`{"metadata":{},"spec":{"podSelector":{}}}`,
		`{"kind":"FQDNNetworkPolicy","apiVersion":"namegate.io/v1alpha1","metadata":{"name":"p"},"spec":{"podSelector":{"matchLabels":{"a":"b"}},`+
			`"egress":[{"matches":[{"name":"a.test"},{"pattern":"*.test"}],"ports":[{"protocol":"ALL","port":1,"endPort":2},{}]}],`+
			`"enforcement":"Audit","denied":"Drop","dns":{"unmatched":"Refuse"},"ttl":{"minSeconds":0,"maxSeconds":99999999999,"graceSeconds":60}}}`,
		`{"metadata":{},"spec":{"podSelector":{}},"status":{"conditions":[{"type":"Accepted","status":"True","lastTransitionTime":null,"reason":"Accepted","message":""}]}}`,
	)
	roundTrip[ClusterFQDNNetworkPolicy](t,
		`{"metadata":{},"spec":{"tier":"Admin","priority":0,"subject":{"namespaces":{}}}}`,
		`{"kind":"ClusterFQDNNetworkPolicy","apiVersion":"namegate.io/v1alpha1","metadata":{"name":"p"},"spec":{"tier":"Baseline","priority":1000,`+
			`"subject":{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"a":"b"}}}},`+
			`"egress":[{"name":"n","action":"Deny","matches":[{"name":"a.test"},{"pattern":"*.test"}],"networks":["192.0.2.0/24"],"ports":[{"protocol":"ALL","port":1,"endPort":2},{}]},`+
			`{"action":"Pass"}],"enforcement":"Audit","denied":"Drop","dns":{"denied":"Resolve","unmatched":"Refuse"},"ttl":{"graceSeconds":60,"reuseSeconds":5}}}`,
	)
	roundTrip[NodeNetworkPolicy](t,
		`{"metadata":{},"spec":{"nodeSelector":{},"priority":0}}`,
		`{"kind":"NodeNetworkPolicy","apiVersion":"namegate.io/v1alpha1","metadata":{"name":"p"},"spec":{"nodeSelector":{"matchLabels":{"a":"b"}},"priority":1000,"traffic":"Forwarded","interfaces":["eth*"],`+
			`"ingress":[{"name":"n","action":"Accept","networks":["192.0.2.0/24"],"nodes":{},"pods":{"namespaceSelector":{},"podSelector":{}},"ports":[{"protocol":"TCP","port":1}]}],`+
			`"egress":[{"action":"Deny","matches":[{"name":"a.test"}],"networks":["192.0.2.0/24"]}],"enforcement":"Audit","denied":"Drop","ttl":{"graceSeconds":60},"safeguard":{"confirmWithin":"5m"}}}`,
	)
}

func roundTrip[T any](t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		var p T
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		got, err := json.Marshal(&p)
		if err != nil || string(got) != text {
			t.Errorf("%v\n%s became\n%s", err, text, got)
		}
	}
}

// TestDeepCopy: a change of the copy does not reach the original.
func TestDeepCopy(t *testing.T) {
	name, port, seconds := "a.test", int32(1), int64(1)
	p := FQDNNetworkPolicy{
		Spec: FQDNNetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Egress:      []EgressRule{{Matches: []Match{{Name: &name}}, Ports: []Port{{Port: &port}}}},
			TTL:         TTL{MinSeconds: &seconds},
		},
		Status: FQDNNetworkPolicyStatus{Conditions: []metav1.Condition{{Type: "Accepted"}}},
	}
	list := FQDNNetworkPolicyList{Items: []FQDNNetworkPolicy{p}}
	q := list.DeepCopyObject().(*FQDNNetworkPolicyList).Items[0]
	diff.Fatal(t, q, p, "the copy")
	q.Spec.PodSelector.MatchLabels["a"] = "c"
	*q.Spec.Egress[0].Matches[0].Name = "b.test"
	*q.Spec.Egress[0].Ports[0].Port = 2
	*q.Spec.TTL.MinSeconds = 2
	q.Status.Conditions[0].Type = "x"
	if p.Spec.PodSelector.MatchLabels["a"] != "b" || name != "a.test" || port != 1 || seconds != 1 || p.Status.Conditions[0].Type != "Accepted" {
		t.Errorf("the original is %+v", p)
	}
}
