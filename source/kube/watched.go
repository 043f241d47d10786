package kube

import (
	"context"
	"slices"

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

// Follow sets the Services whose endpoints are watched from now on. It may be called at any
// time. A State that comes before the endpoints of a new Service are known has its cluster
// addresses alone.
func (s *Source) Follow(refs []policy.ServiceRef) {
	refs = sortedOnce(slices.Clone(refs), compareRefs)
	if last := s.watched.Load(); !slices.Equal(*last, refs) {
		s.watched.Store(&refs)
		s.note()
	}
}

// syncSlices starts and ends list-watches of EndpointSlices, so that there is one for each
// watched Service, and where they are wanted one of the API's.
func (s *Source) syncSlices(ctx context.Context) {
	watched := s.watched.Load()
	s.assembly.moved = s.assembly.moved || watched != s.assembly.watched
	s.assembly.watched = watched
	wanted := *watched
	if s.hosts {
		wanted = append(slices.Clip(wanted), apiService)
	}
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
