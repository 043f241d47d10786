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

// followed is a Service whose EndpointSlices are fed.
type followed struct {
	slices *shelf[sliceEntry]
	stop   context.CancelFunc
}

// wishes are the Services that a Source is told to follow.
type wishes struct {
	mu   sync.Mutex
	refs []policy.ServiceRef // sorted, each once; replaced, never changed
}

// set tells whether refs are others than before.
func (w *wishes) set(refs []policy.ServiceRef) bool {
	refs = sortedOnce(slices.Clone(refs), compareRefs)
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.refs, refs) {
		return false
	}
	w.refs = refs
	return true
}

func (w *wishes) get() []policy.ServiceRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refs
}

// Follow tells which Services to follow from now on, instead of those before. It
// may be called at any time. A State that comes before the endpoints of a new
// one are known has its cluster addresses alone.
func (s *Source) Follow(refs []policy.ServiceRef) {
	if s.wishes.set(refs) {
		s.note()
	}
}

// refollow starts and ends feeds of EndpointSlices, so that they are those of the
// Services to follow.
func (s *Source) refollow(ctx context.Context) {
	wanted := s.wishes.get()
	for _, ref := range wanted {
		if s.followed[ref] == nil {
			s.followed[ref] = s.startSlices(ctx, ref)
		}
	}
	for ref, f := range s.followed {
		if !slices.Contains(wanted, ref) {
			f.stop()
			delete(s.followed, ref)
		}
	}
}

func (s *Source) startSlices(ctx context.Context, ref policy.ServiceRef) *followed {
	ctx, stop := context.WithCancel(ctx)
	f := &followed{slices: newShelf(s.note, readSlice(ref)), stop: stop}
	narrow := func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: ref.Name}.String()
	}
	c := s.client.DiscoveryV1().EndpointSlices(ref.Namespace)
	s.feed(ctx, "endpointslices of "+ref.String(), ask(s.client, narrow, c.List, c.Watch), &discoveryv1.EndpointSlice{}, f.slices)
	return f
}
