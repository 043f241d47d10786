package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

var pods = schema.GroupResource{Resource: "pods"}

// script is a feed whose request to watch ends as err says.
func script(err error) *listWatch {
	return &listWatch{name: "pods", link: newLink(slog.New(slog.DiscardHandler), time.Now), requests: requests{watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		if errors.Is(err, errEmptyWatch) {
			return watch.NewEmptyWatch(), nil
		}
		return watch.NewFake(), err
	}}}
}

// TestWatchIsNoted: which ends of requests to watch are failures of the API server.
func TestWatchIsNoted(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(pods, "", errors.New("no"))
	invalid := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch", pods, "", "cannot stream", 0, true)
	for _, c := range []struct {
		name   string
		err    error
		stream bool
		failed string // what Health says afterwards
	}{
		{"at once", nil, false, ""},
		{"refused", refused, false, "pods: connection refused"},
		{"refused to stream", refused, true, "pods: connection refused"},
		{"hung up", errEmptyWatch, false, "pods: " + errEmptyWatch.Error()},
		{"forbidden", forbidden, false, "pods: " + forbidden.Error()},
		{"too old", apierrors.NewResourceExpired("too old"), false, ""},
		{"no streamed lists", invalid, true, ""},
		{"streamed lists forbidden", forbidden, true, ""},
		{"ended", context.Canceled, false, "pods: " + context.Canceled.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, o := script(c.err), metav1.ListOptions{}
			if c.stream {
				o.SendInitialEvents = new(true)
			}
			if _, err := f.watchNoted(t.Context(), o); (err == nil) != (c.err == nil) || !c.stream && !errors.Is(err, c.err) {
				t.Error(err)
			}
			if h := f.link.health(); h.LastError != c.failed {
				t.Errorf("%+v", h)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			f = script(c.err)
			_, _ = f.watchNoted(ctx, o)
			if h := f.link.health(); h.LastError != "" {
				t.Errorf("after the end of the context: %+v", h)
			}
		})
	}
}

// TestWaitsGrow: while requests are refused, each comes up to twice backoff.Cap after the last, the first ones sooner,
// and none after the end of the context.
func TestWaitsGrow(t *testing.T) {
	refused := errors.New("connection refused")
	for what, listed := range map[string]error{"lists": refused, "watches": nil} {
		synctest.Test(t, func(t *testing.T) {
			began, at := time.Now(), []time.Duration(nil)
			s := script(nil)
			s.clock, s.client = clock.RealClock{}, justLists{}
			s.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if listed != nil {
					at = append(at, time.Since(began))
				}
				return &corev1.PodList{}, listed
			}
			s.watch = func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				at = append(at, time.Since(began))
				return nil, syscall.ECONNREFUSED
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			s.run(ctx, &corev1.Pod{}, newStore(func() {}, readPod(ourNode)))
			if took := time.Since(began); took != 10*time.Minute {
				t.Errorf("%s: ended after %v", what, took)
			}
			if len(at) < 75 || len(at) > 160 || at[1] > 2*backoff.Duration || at[2]-at[1] > 4*backoff.Duration {
				t.Errorf("%s: %d requests in ten minutes, at first after %v", what, len(at), at[:min(4, len(at))])
			}
		})
	}
}

func TestListIsNoted(t *testing.T) {
	s := script(nil)
	answers := []error{errors.New("refused"), apierrors.NewResourceExpired("too old"), nil}
	s.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		err := answers[0]
		answers = answers[1:]
		return nil, err
	}
	for _, want := range []string{"pods: refused", "pods: refused", ""} {
		_, _ = s.listNoted(t.Context(), metav1.ListOptions{})
		if got := s.link.health().LastError; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestListsTakeTurns: only so many run at a time as there are turns, and one that waits ends with its context.
func TestListsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, running, answer := make(chan struct{}, remoteLists), 0, make(chan struct{})
		var done sync.WaitGroup
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		ended := 0
		for range 2 * remoteLists {
			s := script(nil)
			s.turns = turns
			s.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				mu.Lock()
				running++
				mu.Unlock()
				<-answer
				return nil, nil
			}
			done.Go(func() {
				if _, err := s.listNoted(ctx, metav1.ListOptions{}); err != nil {
					mu.Lock()
					ended++
					mu.Unlock()
				}
			})
		}
		expect := func(lists, over int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if running != lists || ended != over {
				t.Errorf("%d lists have begun and %d have ended without an answer, want %d and %d", running, ended, lists, over)
			}
		}
		expect(remoteLists, 0)
		answer <- struct{}{}
		expect(remoteLists+1, 0)
		cancel()
		expect(remoteLists+1, remoteLists-1)
		close(answer)
		done.Wait()
	})
}
