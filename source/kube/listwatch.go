package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// How long a listWatch waits before it asks again: first and at most, each up to
// twice as long by chance, so that not all nodes come at once. client-go's own 30 s
// would let new pods wait that long after the API server is back.
const (
	retryFirst = 250 * time.Millisecond
	maxRetry   = 4 * time.Second
)

// servedAgain is the least time after which a kind that cannot be read is asked for again, up
// to twice as long by chance.
const servedAgain = 30 * time.Second

// requests are how the objects of one kind are asked for.
type requests struct {
	client any // whose requests these are; justLists: a list is not streamed
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// justLists is the client of requests that select few of many objects of a kind. The API server takes a
// list from its cache. For a streamed list it copies and sorts all objects of the kind, under the lock
// of the cache (newCacheIntervalFromStore of k8s.io/apiserver 0.36).
type justLists struct{}

// IsWatchListSemanticsUnSupported has the reflector, which asks for this exact name, list.
func (justLists) IsWatchListSemanticsUnSupported() bool { return true }

// newRequests makes requests out of the methods of a client.
func newRequests[L runtime.Object](client any, filter func(*metav1.ListOptions), list func(context.Context, metav1.ListOptions) (L, error),
	start func(context.Context, metav1.ListOptions) (watch.Interface, error)) requests {
	return requests{
		client: client,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			filter(&o)
			found, err := list(ctx, o)
			if err != nil { // a nil of type L is no nil runtime.Object
				return nil, err
			}
			return found, nil
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			filter(&o)
			return start(ctx, o)
		},
	}
}

// emptyWatch is the result of a client, without an error, for a watch that the server
// ended or left without a reply.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

var errEmptyWatch = errors.New("the API server hung up, or said nothing in time")

func unfiltered(*metav1.ListOptions) {}

// listWatch keeps a store filled from the API server. Every response and every failed
// request passes through it, so none is overlooked.
type listWatch struct {
	name string // of the resource, in words of the API
	requests
	link *link
	// after waits, as time.After does.
	after func(time.Duration) <-chan time.Time
	// served gets the answer to a short list and returns whether the kind can be read. If
	// not, that is no failure, and it is asked again after servedAgain. nil: it always can.
	served func(err error) bool
	page   int64 // how many objects a list asks for at a time; 0: as the reflector likes
	// turns has room for the lists that may run at a time, of this and other list-watches; nil: any.
	turns chan struct{}

	ended bool // no request means anything any more; of the link
}

// run fills the store until ctx ends.
func (f *listWatch) run(ctx context.Context, example runtime.Object, store cache.ReflectorStore) {
	requests := &cache.ListWatch{ListWithContextFunc: f.listNoted, WatchFuncWithContext: f.watchNoted}
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(requests, f.client), example, store, cache.ReflectorOptions{
		Name: f.name,
		Backoff: &wait.Backoff{ // for the few waits that are the reflector's own
			Duration: retryFirst, Cap: maxRetry, Factor: 2, Jitter: 1, Steps: 8,
		},
	})
	r.WatchListPageSize = f.page
	for tries := 0; ctx.Err() == nil; tries++ {
		if f.served != nil && !f.probe(ctx) {
			tries = 0
			select {
			case <-ctx.Done():
			case <-f.after(servedAgain + rand.N(servedAgain)):
			}
			continue
		}
		before := r.LastSyncResourceVersion()
		// Its errors are those of requests, which note reports.
		_ = r.ListAndWatchWithContext(ctx)
		if r.LastSyncResourceVersion() != before {
			tries = 0
		}
		f.wait(ctx, tries)
	}
}

// probe tells whether the kind can be read. Failures of other sorts are the reflector's.
func (f *listWatch) probe(ctx context.Context) bool {
	_, err := f.list(ctx, metav1.ListOptions{Limit: 1})
	if ctx.Err() != nil || f.served(err) {
		return true
	}
	f.note(ctx, nil)
	return false
}

// wait returns after the time that is due after so many tries in a row, or when ctx ends.
func (f *listWatch) wait(ctx context.Context, tries int) {
	d := min(retryFirst<<min(tries, 10), maxRetry)
	select {
	case <-ctx.Done():
	case <-f.after(d + rand.N(d)):
	}
}

// listNoted lists.
func (f *listWatch) listNoted(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if f.turns != nil {
		select {
		case f.turns <- struct{}{}:
			defer func() { <-f.turns }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	list, err := f.list(ctx, o)
	f.note(ctx, err)
	return list, err
}

// watchNoted begins to watch. While the API server cannot be reached it retries by
// itself: the reflector would not stop for ctx meanwhile, or would list everything again.
func (f *listWatch) watchNoted(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	for tries := 0; ; tries++ {
		w, err := f.watch(context.WithValue(ctx, watcher{}, f), o)
		if err == nil && reflect.TypeOf(w) == emptyWatch {
			err = errEmptyWatch
		}
		if err != nil && o.SendInitialEvents != nil && isAnswer(err) && !isTransient(err) {
			return nil, err // a server that cannot stream lists; it is asked to list now
		}
		f.note(ctx, err)
		if err == nil || ctx.Err() != nil || isAnswer(err) && !isTransient(err) {
			return w, err
		}
		f.wait(ctx, tries)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// note reports the end of a request to the link. An end with ctx means nothing, and
// neither does an expired version: the reflector lists again immediately.
func (f *listWatch) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		f.link.note(f, nil)
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
	default:
		f.link.note(f, err)
	}
}

// isAnswer tells whether an error is an API server's answer.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// isTransient tells whether an answer says that a later try may do better.
func isTransient(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}
