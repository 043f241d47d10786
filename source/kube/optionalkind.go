package kube

import (
	"context"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/policy"
)

// ReasonForbidden means: the API server does not let the agent list and watch a kind.
const ReasonForbidden = "Forbidden"

// optionalKind is a kind of policies that an API server may not serve, or not let the agent
// read. The agent goes on without them.
type optionalKind[T any] struct {
	*store[T]
	resource  schema.GroupVersionResource
	advice    string // what to do where the agent may not read them
	forbidden atomic.Bool
}

func newOptionalKind[T any](changed func(), read func(object any, before *T) *T, resource schema.GroupVersionResource, advice string) *optionalKind[T] {
	return &optionalKind[T]{store: newStore(changed, read), resource: resource, advice: advice}
}

// served tells whether the policies can be read, by the answer to a list. On a cluster
// without this version of the CRD they are not served; with an older role of the agent they
// are forbidden. Policies that were read stay in force where they are forbidden later.
func (k *optionalKind[T]) served(err error) bool {
	forbidden := apierrors.IsForbidden(err) && (k.forbidden.Load() || !k.synced())
	if k.forbidden.Swap(forbidden) != forbidden {
		k.changed()
	}
	if !forbidden && !apierrors.IsNotFound(err) {
		return true
	}
	_ = k.Replace(nil, "") // it never fails
	return false
}

// unread returns the problem that the policies cannot be read, if so.
func (k *optionalKind[T]) unread() []policy.Problem {
	if !k.forbidden.Load() {
		return nil
	}
	return []policy.Problem{{
		Object: k.resource.Resource, Reason: ReasonForbidden,
		Message: "the API server does not let the agent read them, so that none is in force; " + k.advice + ", which lets the agent list and watch them",
	}}
}

// watchOptional keeps the store of a kind filled while the API server serves it, until ctx ends.
func watchOptional[T any](ctx context.Context, s *Source, k *optionalKind[T]) {
	client := s.dynamic.Resource(k.resource)
	s.run(ctx, &listWatch{
		name: k.resource.Resource, requests: newRequests(s.dynamic, unfiltered, client.List, client.Watch),
		link: s.link, after: s.clock.After, served: k.served,
	}, &unstructured.Unstructured{}, k.store)
}
