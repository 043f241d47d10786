package client

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy/api/cnp"
)

// List calls each with the objects of a kind in a namespace, or with "" in all, as the API
// server gives them to the caller. Errors are each's, or *console.Refusal (403 the caller may
// not list them, 404 the kind is not served), or *console.Unreachable.
func (c *Cluster) List(ctx context.Context, kind schema.GroupVersionResource, namespace string, each func(*unstructured.Unstructured) error) error {
	var own error
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return cnp.AsServed(kind, func(of schema.GroupVersionResource) (runtime.Object, error) {
			return c.dynamic.Resource(of).Namespace(namespace).List(ctx, o)
		})
	}).EachListItem(ctx, metav1.ListOptions{Limit: podsPage}, func(o runtime.Object) error {
		own = each(o.(*unstructured.Unstructured))
		return own
	})
	what := "list " + kind.GroupResource().String()
	switch {
	case own != nil:
		return own
	case apierrors.IsForbidden(err):
		return console.Refuse(http.StatusForbidden, "you may not %s", what)
	case apierrors.IsNotFound(err):
		return console.Refuse(http.StatusNotFound, "the API server has no %s", kind.GroupResource())
	case err != nil:
		return c.failed(what, err)
	}
	return nil
}
