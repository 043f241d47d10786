package manifest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// aWatch reports what the test sends.
func aWatch() *fsnotify.Watcher {
	return &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
}

// TestWait: when a wait for changes ends. Each change restarts the quiet time, up to the
// maximum, and neighbours of the folder are no change.
func TestWait(t *testing.T) {
	const step = QuietDelay - time.Millisecond
	for name, c := range map[string]struct {
		paths []string // one each step
		want  time.Duration
	}{
		"nothing":                 {nil, RescanPeriod},
		"a change":                {[]string{"/d/a.yaml"}, step + QuietDelay},
		"a burst":                 {[]string{"/d/a.yaml", "/d", ""}, 3*step + QuietDelay},
		"a burst without end":     {make([]string, 100), step + MostDelay},
		"neighbours":              {[]string{"/other", "/d2/a.yaml", "/d2"}, RescanPeriod},
		"neighbours and a change": {[]string{"/other", "/d/a.yaml", "/d2"}, 2*step + QuietDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := aWatch(), time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for _, path := range c.paths {
						select {
						case <-time.After(step):
							if path == "" {
								w.Errors <- fsnotify.ErrEventOverflow
							} else {
								w.Events <- fsnotify.Event{Name: path}
							}
						case <-ctx.Done():
							return
						}
					}
				}()
				if err := (&Source{dir: "/d"}).wait(ctx, w); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestWaitEnds(t *testing.T) {
	s := &Source{dir: "/d"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.wait(ctx, aWatch()); err != nil {
		t.Errorf("at the end of the context: %v", err)
	}
	w := aWatch()
	close(w.Events)
	if err := s.wait(t.Context(), w); err == nil {
		t.Error("no error at the end of the watch")
	}
}
