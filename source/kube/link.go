package kube

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Health is a Source's connection to the API server.
type Health struct {
	// Disconnected is since when the API server is unavailable or refuses requests; zero
	// while all is well.
	Disconnected time.Time
	// LastError is why, "" while all is well.
	LastError string
}

// link notes which list-watches the API server does not answer. It logs when the first
// begins to fail and when none fails any more, and nothing between.
type link struct {
	log *slog.Logger
	now func() time.Time
	// changed is called when a list-watch begins to fail, and when it fails no more. It must not wait
	// for anything, and may be nil.
	changed func()

	mu      sync.Mutex
	failing map[*listWatch]bool
	since   time.Time // of the first failure
	last    string    // the last error
}

func newLink(log *slog.Logger, now func() time.Time) *link {
	return &link{log: log, now: now, failing: map[*listWatch]bool{}}
}

// note notes how a request of a list-watch ended.
func (l *link) note(f *listWatch, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.ended {
		return
	}
	l.set(f, err)
}

// end notes that a list-watch has ended: requests of it that end later mean nothing.
func (l *link) end(f *listWatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.ended = true
	l.set(f, nil)
}

// set is note; mu is held.
func (l *link) set(f *listWatch, err error) {
	before, was := len(l.failing), l.failing[f]
	if err != nil {
		l.failing[f], l.last = true, f.name+": "+err.Error()
	} else {
		delete(l.failing, f)
	}
	switch {
	case was == l.failing[f]:
		return
	case before == 0:
		l.since = l.now()
		l.log.Warn("the API server is away or refuses; the agent goes on with what it knows", "feed", f.name, "error", err)
	case len(l.failing) == 0:
		l.log.Info("no request to the API server fails any more", "after", l.now().Sub(l.since))
		l.since, l.last = time.Time{}, ""
	}
	if l.changed != nil {
		l.changed()
	}
}

// fails tells whether the API server does not answer a list-watch.
func (l *link) fails(f *listWatch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing[f]
}

func (l *link) health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Health{Disconnected: l.since, LastError: l.last}
}

// attempts notes attempts of watches to which nothing is answered in time. The client makes eleven before it
// returns, of half a minute each.
type attempts struct{ http.RoundTripper }

// watcher is the key of a context for the listWatch whose attempts are noted.
type watcher struct{}

// RoundTrip implements http.RoundTripper.
func (a attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if f, ok := r.Context().Value(watcher{}).(*listWatch); ok && err != nil && utilnet.IsTimeout(err) {
		f.note(r.Context(), err)
	}
	return response, err
}
