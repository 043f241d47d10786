package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestList: the objects of all pages, with their kinds, and each way in which an API server refuses them.
func TestList(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		refuse := func(code int32, reason metav1.StatusReason) {
			w.WriteHeader(int(code))
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code})
		}
		switch r.URL.Path {
		case "/api/v1/namespaces/shop/pods":
			name, next := "a", "more"
			if r.URL.Query().Get("continue") == next {
				name, next = "b", ""
			}
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":%q},"items":[{"metadata":{"name":%q,"namespace":"shop"}}]}`, next, name)
		case "/api/v1/pods":
			refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		case "/api/v1/services":
			refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		case "/api/v1/nodes":
			refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		case "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies": // of an earlier CRD
			fmt.Fprint(w, `{"kind":"ClusterNetworkPolicyList","apiVersion":"policy.networking.k8s.io/v1alpha2","items":[{"metadata":{"name":"c"}}]}`)
		default:
			refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
	}))
	t.Cleanup(s.Close)
	c, err := connect(&rest.Config{Host: s.URL}, "shop", Login{})
	fatal.If(t, err)
	var got []string
	add := func(u *unstructured.Unstructured) error {
		got = append(got, u.GetKind()+" "+u.GetName())
		return nil
	}
	fatal.If(t, c.List(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", add))
	fatal.If(t, c.List(t.Context(), cnp.Resource(), "", add))
	diff.Error(t, []string{"Pod a", "Pod b", "ClusterNetworkPolicy c"}, got)
	for resource, want := range map[string]struct {
		code int
		text string
	}{
		"pods":     {console.ExitForbidden, "you may not list pods"},
		"services": {console.ExitForbidden, "log in again"},
		"nodes":    {console.ExitUnreachable, "list nodes: "},
		"things":   {console.ExitUnknown, "the API server has no things"},
	} {
		err := c.List(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: resource}, "", add)
		if console.ExitCode(err) != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: exit code %d, %v", resource, console.ExitCode(err), err)
		}
	}
}
