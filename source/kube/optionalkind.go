package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// ReasonForbidden means: the API server does not let the agent list and watch a kind.
const ReasonForbidden = "Forbidden"

// ReasonNotServed means: the API server serves a kind of policies no more that it served.
const ReasonNotServed = "NotServed"

// A kind is gone when discovery has lacked it in absentAsks asks in a row over absentTime at least:
// policies that were read, Admin Deny included, do not end with one wrong answer. Where its CRD is
// deleted, the watch shows the deletion of each policy before.
const (
	absentAsks = 3
	absentTime = time.Minute
)

// optionalKind is a kind of policies that an API server may not serve, or not let the agent
// read. The agent goes on without them.
type optionalKind[T any] struct {
	*store[T]
	resource schema.GroupVersionResource
	advice   string // what to do where the agent may not read them
	// discover asks discovery whether the kind is served.
	discover func() (bool, error)
	now      func() time.Time
	log      *slog.Logger

	mu        sync.Mutex // of the fields below
	forbidden bool
	absent    time.Time // since when lists of a kind that was served answer "not found"
	asks      int       // of discovery in a row that lacked it
	missed    time.Time // the first of them
	dropped   bool      // the policies that were read
}

func newOptionalKind[T any](changed func(), read func(object any, before *T) *T, resource schema.GroupVersionResource, advice string) *optionalKind[T] {
	return &optionalKind[T]{store: newStore(changed, read), resource: resource, advice: advice}
}

// served tells whether the policies can be read, by the answer to a list. On a cluster
// without the CRD they are not served; with another role of the agent they
// are forbidden. Policies that were read stay in force where they are forbidden later.
func (k *optionalKind[T]) served(err error) bool {
	missing, some, lacks := apierrors.IsNotFound(err), k.some(), false
	if missing && some {
		served, err := k.discover()
		lacks = err == nil && !served
	}
	k.mu.Lock()
	before := k.report()
	k.forbidden = apierrors.IsForbidden(err) && (k.forbidden || !k.synced())
	if !lacks { // the next asks are not in a row with those before
		k.asks = 0
	} else if k.asks++; k.asks == 1 {
		k.missed = k.now()
	}
	switch {
	case err == nil:
		k.absent, k.dropped = time.Time{}, false
	case missing && some:
		if k.absent.IsZero() {
			k.absent = k.now()
			k.log.Warn("the API server does not serve a kind of policies; those that were read stay in force", "kind", k.resource.Resource)
		}
		if k.dropped = k.asks >= absentAsks && k.now().Sub(k.missed) >= absentTime; k.dropped {
			k.log.Warn("discovery lacks a kind of policies for a minute; none of them is in force any more", "kind", k.resource.Resource)
		}
	}
	read, stay, news := !k.forbidden && !missing, missing && some && !k.dropped, k.report() != before
	k.mu.Unlock()
	if news {
		k.changed()
	}
	if !read && !stay {
		_ = k.Replace(nil, "") // it never fails
	}
	return read
}

// report returns the reason and the message of the kind's problem, "" for none; mu is held.
func (k *optionalKind[T]) report() (is [2]string) {
	switch since := k.absent.UTC().Format(time.RFC3339); {
	case k.forbidden:
		is = [2]string{ReasonForbidden, "the API server does not let the agent read them, so that none is in force; " + k.advice + ", which lets the agent list and watch them"}
	case k.absent.IsZero():
	case k.dropped:
		is = [2]string{ReasonNotServed, "the API server does not serve the kind since " + since + ", so that none of its policies is in force any more; install its CRD"}
	default:
		is = [2]string{ReasonNotServed, "the API server does not serve the kind since " + since + "; the policies that were read stay in force until discovery has lacked the kind for a minute. Install its CRD, or delete the policies"}
	}
	return is
}

// unread returns the problem that the policies cannot be read, if so.
func (k *optionalKind[T]) unread() []policy.Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.report()
	if is[0] == "" {
		return nil
	}
	return []policy.Problem{{Object: k.resource.Resource, Reason: is[0], Message: is[1]}}
}

// discovered returns the function that asks discovery whether a kind is served.
func discovered(client kubernetes.Interface, resource schema.GroupVersionResource) func() (bool, error) {
	return func() (bool, error) {
		all, err := cnp.AsServed(resource, func(of schema.GroupVersionResource) (*metav1.APIResourceList, error) {
			return client.Discovery().ServerResourcesForGroupVersion(of.GroupVersion().String())
		})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("discovering %s: %w", resource.Resource, err)
		}
		return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }), nil
	}
}

// watchOptional keeps the store of a kind filled while the API server serves it, until ctx ends.
func watchOptional[T any](ctx context.Context, s *Source, k *optionalKind[T]) {
	k.discover, k.log, k.now = discovered(s.client, k.resource), s.log, s.clock.Now
	// Each request asks for the versions of the kind anew: with its CRD they come and go.
	list := func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		return cnp.AsServed(k.resource, func(of schema.GroupVersionResource) (*unstructured.UnstructuredList, error) {
			return s.dynamic.Resource(of).List(ctx, o)
		})
	}
	start := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return cnp.AsServed(k.resource, func(of schema.GroupVersionResource) (watch.Interface, error) {
			return s.dynamic.Resource(of).Watch(ctx, o)
		})
	}
	s.run(ctx, &listWatch{
		name: k.resource.Resource, requests: newRequests(s.dynamic, unfiltered, list, start),
		link: s.link, after: s.clock.After, served: k.served,
	}, &unstructured.Unstructured{}, k.store)
}
