package kube

import (
	"context"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
)

// sliceWatch is the list-watch of the EndpointSlices of a Service.
type sliceWatch struct {
	slices *store[sliceEntry]
	stop   context.CancelFunc
}

// watchedServices are the Services of which a Source watches EndpointSlices.
type watchedServices struct {
	mu   sync.Mutex
	refs []policy.ServiceRef // sorted, each once; replaced, never changed
}

// set tells whether refs are others than before.
func (w *watchedServices) set(refs []policy.ServiceRef) bool {
	refs = sortedOnce(slices.Clone(refs), compareRefs)
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.refs, refs) {
		return false
	}
	w.refs = refs
	return true
}

func (w *watchedServices) get() []policy.ServiceRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refs
}

// Follow sets the Services whose endpoints are watched from now on. It may be called at any
// time. A State that comes before the endpoints of a new Service are known has its cluster
// addresses alone.
func (s *Source) Follow(refs []policy.ServiceRef) {
	if s.watched.set(refs) {
		s.note()
	}
}

// syncSlices starts and ends list-watches of EndpointSlices, so that there is one for each
// watched Service.
func (s *Source) syncSlices(ctx context.Context) {
	wanted := s.watched.get()
	for _, ref := range wanted {
		if s.sliceWatches[ref] == nil {
			s.sliceWatches[ref] = s.startSlices(ctx, ref)
		}
	}
	for ref, f := range s.sliceWatches {
		if !slices.Contains(wanted, ref) {
			f.stop()
			delete(s.sliceWatches, ref)
		}
	}
}

func (s *Source) startSlices(ctx context.Context, ref policy.ServiceRef) *sliceWatch {
	ctx, stop := context.WithCancel(ctx)
	f := &sliceWatch{slices: newStore(s.note, readSlice(ref)), stop: stop}
	filter := func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: ref.Name}.String()
	}
	c := s.client.DiscoveryV1().EndpointSlices(ref.Namespace)
	s.watch(ctx, "endpointslices of "+ref.String(), newRequests(s.client, filter, c.List, c.Watch), &discoveryv1.EndpointSlice{}, f.slices)
	return f
}
