package applyconfiguration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	ac "github.com/namegate/namegate/crds/applyconfiguration/crds/v1alpha1"
	"github.com/namegate/namegate/crds/v1alpha1"
)

// A program applies a policy by server-side apply, with the dynamic client. It owns the fields that
// it sets, and leaves those of others.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of an API server
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.URL.Path, r.URL.Query().Get("fieldManager"), r.Header.Get("Content-Type"))
		fmt.Println(string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}

	policy := ac.FQDNNetworkPolicy("only-example", "shop").WithSpec(ac.FQDNNetworkPolicySpec().
		WithPodSelector(metaac.LabelSelector().WithMatchLabels(map[string]string{"app": "cart"})).
		WithEgress(ac.EgressRule().
			WithMatches(ac.Match().WithName("www.example.org")).
			WithPorts(ac.Port().WithProtocol(v1alpha1.ProtocolTCP).WithPort(443))))

	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Resource(v1alpha1.GroupVersionResource()).Namespace("shop").
		Apply(context.Background(), "only-example", &unstructured.Unstructured{Object: object}, metav1.ApplyOptions{FieldManager: "shop-operator"})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// PATCH /apis/namegate.io/v1alpha1/namespaces/shop/fqdnnetworkpolicies/only-example shop-operator application/apply-patch+yaml
	// {"apiVersion":"namegate.io/v1alpha1","kind":"FQDNNetworkPolicy","metadata":{"name":"only-example","namespace":"shop"},"spec":{"egress":[{"matches":[{"name":"www.example.org"}],"ports":[{"port":443,"protocol":"TCP"}]}],"podSelector":{"matchLabels":{"app":"cart"}}}}
}
