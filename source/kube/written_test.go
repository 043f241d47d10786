package kube

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// conditionsText shows how many conditions the policies of each kind have.
func conditionsText(s State) string {
	out := ""
	for _, p := range s.Input.Policies {
		out += fmt.Sprint(len(p.Status.Conditions))
	}
	for _, p := range s.Input.ClusterPolicies {
		out += fmt.Sprint(len(p.Status.Conditions))
	}
	for _, u := range s.Input.ClusterNetworkPolicies {
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		out += fmt.Sprint(len(conditions))
	}
	for _, p := range s.Input.NodePolicies {
		out += fmt.Sprint(len(p.Status.Conditions))
	}
	return out
}

// TestStatusIsNoInput: a State with written conditions, and with nothing but another version,
// needs no compile; one with another annotation or spec does.
func TestStatusIsNoInput(t *testing.T) {
	api := newAPIServer(t)
	policies := map[string]*unstructured.Unstructured{
		"fqdnnetworkpolicies": aPolicy("p", "a.test"), "clusterfqdnnetworkpolicies": aClusterPolicy("c", "a.test"), "clusternetworkpolicies": aStandard("s", "namespaces"),
		"nodenetworkpolicies": aNodePolicy("n"),
	}
	for resource, u := range policies {
		api.put(resource, u)
	}
	client, dyn := api.clients()
	r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, ClusterNetworkPolicies: true, Log: slog.New(slog.DiscardHandler)})
	first := r.until("0000", conditionsText)
	for i, resource := range []string{"fqdnnetworkpolicies", "clusterfqdnnetworkpolicies", "clusternetworkpolicies", "nodenetworkpolicies"} {
		u := policies[resource].DeepCopy()
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Apply"}})
		api.put(resource, u) // managedFields and the version
		condition := map[string]any{"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		fatal.If(t, unstructured.SetNestedSlice(u.Object, []any{condition}, "status", "conditions"))
		api.put(resource, u)
		if s := r.until([]string{"1000", "1100", "1110", "1111"}[i], conditionsText); s.Inputs != first.Inputs {
			t.Errorf("%s: the written condition is input %d after %d", resource, s.Inputs, first.Inputs)
		}
	}
	for i, change := range []func(*unstructured.Unstructured){
		func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) },
		func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) },
		func(u *unstructured.Unstructured) { set(t, u, "Audit", "spec", "enforcement") },
	} {
		u := policies["fqdnnetworkpolicies"].DeepCopy()
		change(u)
		api.put("fqdnnetworkpolicies", u)
		r.until(fmt.Sprint(first.Inputs+uint64(i)+1), func(s State) string { return fmt.Sprint(s.Inputs) })
	}
}

// TestStatesKeepApart: while objects pour in, States are MostDelay apart; a first change is a
// State after QuietDelay.
func TestStatesKeepApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Client: fake.NewClientset(), Dynamic: dynamicfake.NewSimpleDynamicClient(k8sruntime.NewScheme()), NodeName: ourNode,
			Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}})
		fatal.If(t, err)
		fatal.If(t, s.pods.Replace(nil, ""))
		var at []time.Duration
		began := time.Now()
		emit := func() {
			s.gather()
			s.emit(func(State) { at = append(at, time.Since(began)) })
		}
		emit()
		time.Sleep(time.Hour)
		began = time.Now()
		go func() {
			for i := range 100 { // five seconds of a pod each 50 ms, which is more than QuietDelay
				fatal.If(t, s.pods.Add(aPod(fmt.Sprint("p", i), fmt.Sprintf("10.0.0.%d", i+1))))
				time.Sleep(50 * time.Millisecond)
			}
		}()
		for at = nil; time.Since(began) < 5*time.Second; emit() {
			s.wait(t.Context())
		}
		if len(at) < 20 || at[0] != QuietDelay {
			t.Errorf("%d states, the first after %v", len(at), at[0])
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < MostDelay {
				t.Errorf("a state after %v and one after %v", at[i-1], at[i])
			}
		}
	})
}

// absences is discovery that answers with what the test says.
type absences struct {
	served bool
	err    error
}

func (a *absences) has() (bool, error) { return a.served, a.err }

// TestNotServedStays: policies that were read stay in force while a list has the answer "not
// found", until discovery has lacked the kind three times over a minute.
func TestNotServedStays(t *testing.T) {
	missing, flaky := apierrors.NewNotFound(v1alpha1.ClusterGroupVersionResource().GroupResource(), ""), fmt.Errorf("busy")
	type ask struct {
		after  time.Duration
		list   error
		served bool
		err    error
		kept   bool
		says   bool
	}
	for name, asks := range map[string][]ask{
		"three over a minute":     {{0, missing, false, nil, true, true}, {30 * time.Second, missing, false, nil, true, true}, {30 * time.Second, missing, false, nil, false, true}},
		"three within a minute":   {{0, missing, false, nil, true, true}, {5 * time.Second, missing, false, nil, true, true}, {5 * time.Second, missing, false, nil, true, true}, {time.Minute, missing, false, nil, false, true}},
		"two over an hour":        {{0, missing, false, nil, true, true}, {time.Hour, missing, false, nil, true, true}},
		"discovery has it":        {{0, missing, true, nil, true, true}, {time.Minute, missing, true, nil, true, true}, {time.Minute, missing, true, nil, true, true}},
		"discovery has it once":   {{0, missing, false, nil, true, true}, {time.Minute, missing, true, nil, true, true}, {time.Minute, missing, false, nil, true, true}, {time.Second, missing, false, nil, true, true}},
		"discovery answers not":   {{0, missing, false, flaky, true, true}, {time.Minute, missing, false, flaky, true, true}, {time.Minute, missing, false, flaky, true, true}},
		"served again":            {{0, missing, false, nil, true, true}, {time.Minute, missing, false, nil, true, true}, {time.Second, nil, true, nil, true, false}, {time.Second, missing, false, nil, true, true}},
		"served after it was not": {{0, missing, false, nil, true, true}, {time.Minute, missing, false, nil, true, true}, {time.Second, missing, false, nil, false, true}, {time.Second, nil, true, nil, false, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			discovery := &absences{}
			k := newOptionalKind(func() {}, readClusterPolicy, v1alpha1.ClusterGroupVersionResource(), "")
			k.discover, k.log, k.now = discovery.has, slog.New(slog.DiscardHandler), time.Now
			fatal.If(t, k.Replace([]any{aClusterPolicy("p", "a.test")}, ""))
			for i, a := range asks {
				time.Sleep(a.after)
				discovery.served, discovery.err = a.served, a.err
				diff.Equal(t, a.list == nil, k.served(a.list), name, i, "served")
				var says []policy.Problem
				for _, p := range k.unread() {
					if p.Reason == ReasonNotServed {
						says = append(says, p)
					}
				}
				if k.some() != a.kept || (len(says) > 0) != a.says {
					t.Errorf("%s, %d: policies %v, says %v", name, i, k.some(), says)
				}
			}
		})
	}
}
