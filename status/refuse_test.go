package status

import (
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
)

// refuse makes the API server refuse requests. It returns how many there were.
func refuse(c *fake.Clientset, verb, resource, why string) *atomic.Int32 {
	count := &atomic.Int32{}
	c.PrependReactor(verb, resource, func(clienttest.Action) (bool, runtime.Object, error) {
		count.Add(1)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(why))
	})
	return count
}
