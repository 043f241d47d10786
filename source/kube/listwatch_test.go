package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var pods = schema.GroupResource{Resource: "pods"}

// scripted is a feed whose requests to watch end as errs say, one after the other,
// and then succeed. It never waits, and notes how long it would have.
type scripted struct {
	*listWatch
	errs   []error
	tries  int
	waited []time.Duration
}

func script(errs ...error) *scripted {
	s := &scripted{errs: errs}
	s.listWatch = &listWatch{name: "pods", link: newLink(slog.New(slog.DiscardHandler), time.Now)}
	s.after = func(d time.Duration) <-chan time.Time {
		s.waited = append(s.waited, d)
		c := make(chan time.Time, 1)
		c <- time.Time{}
		return c
	}
	s.listWatch.watch = func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		s.tries++
		if len(s.errs) == 0 {
			return watch.NewFake(), nil
		}
		err := s.errs[0]
		s.errs = s.errs[1:]
		if errors.Is(err, errEmptyWatch) {
			return watch.NewEmptyWatch(), nil
		}
		return nil, err
	}
	return s
}

func TestWatchTriesAgain(t *testing.T) {
	refused := errors.New("connection refused")
	busy := apierrors.NewTooManyRequests("later", 1)
	starting := apierrors.NewServiceUnavailable("starting")
	forbidden := apierrors.NewForbidden(pods, "", errors.New("no"))
	expired := apierrors.NewResourceExpired("too old")
	invalid := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch", pods, "", "cannot stream", 0, true)
	for _, c := range []struct {
		name   string
		errs   []error
		stream bool
		tries  int
		err    error
		failed string // what Health says afterwards
	}{
		{"at once", nil, false, 1, nil, ""},
		{"refused", []error{refused, refused}, false, 3, nil, ""},
		{"hung up", []error{errEmptyWatch, errEmptyWatch}, false, 3, nil, ""},
		{"busy and starting", []error{busy, starting}, true, 3, nil, ""},
		{"forbidden", []error{forbidden}, false, 1, forbidden, "pods: " + forbidden.Error()},
		{"too old", []error{expired}, false, 1, expired, ""},
		{"too old after a while", []error{refused, expired}, false, 2, expired, "pods: connection refused"},
		{"no streamed lists", []error{invalid}, true, 1, invalid, ""},
		{"streamed lists forbidden", []error{forbidden}, true, 1, forbidden, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script(c.errs...)
			o := metav1.ListOptions{}
			if c.stream {
				o.SendInitialEvents = new(true)
			}
			w, err := s.watchNoted(t.Context(), o)
			if !errors.Is(err, c.err) || (w != nil) != (c.err == nil) || s.tries != c.tries {
				t.Errorf("%v, %v after %d tries", w, err, s.tries)
			}
			if h := s.link.health(); h.LastError != c.failed {
				t.Errorf("%+v", h)
			}
			diff.Equal(t, c.tries-1, len(s.waited), "waited", s.waited)
		})
	}
}

// TestWaitsGrow: each wait is up to twice as long as the last, within bounds.
func TestWaitsGrow(t *testing.T) {
	errs := make([]error, 30)
	for i := range errs {
		errs[i] = errEmptyWatch
	}
	s := script(errs...)
	_, err := s.watchNoted(t.Context(), metav1.ListOptions{})
	fatal.If(t, err)
	for i, d := range s.waited {
		least := min(retryFirst<<min(i, 10), maxRetry)
		if d < least || d >= 2*least {
			t.Errorf("wait %d is %v, want %v to %v", i, d, least, 2*least)
		}
	}
}

// TestWatchStopsWaiting: the end of the context ends a wait, and tells nothing about the server.
func TestWatchStopsWaiting(t *testing.T) {
	s := script(errEmptyWatch)
	ctx, cancel := context.WithCancel(t.Context())
	s.after = func(time.Duration) <-chan time.Time {
		cancel()
		return nil
	}
	if w, err := s.watchNoted(ctx, metav1.ListOptions{}); w != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", w, err)
	}
	s = script(context.Canceled)
	if _, err := s.watchNoted(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) || s.link.health().LastError != "" {
		t.Errorf("%v, %+v", err, s.link.health())
	}
}

func TestListIsNoted(t *testing.T) {
	s := script()
	answers := []error{errors.New("refused"), apierrors.NewResourceExpired("too old"), nil}
	s.listWatch.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		err := answers[0]
		answers = answers[1:]
		return nil, err
	}
	for _, want := range []string{"pods: refused", "pods: refused", ""} {
		_, _ = s.listNoted(t.Context(), metav1.ListOptions{})
		diff.Equal(t, want, s.link.health().LastError)
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
			s := script()
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
