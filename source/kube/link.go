package kube

import (
	"log/slog"
	"sync"
	"time"
)

// Health tells how a Source stands with the API server.
type Health struct {
	// Synced is true from the moment on at which everything was known once. It
	// stays true: what is known stays in force.
	Synced bool
	// Disconnected is since when the API server is away, or refuses what the agent
	// asks for; zero while all is well.
	Disconnected time.Time
	// LastError is why, "" while all is well.
	LastError string
}

// link notes which feeds the API server does not answer. It says in the log when the
// first begins to fail and when the last is well again, and nothing between.
type link struct {
	log *slog.Logger
	now func() time.Time
	// changed is called when a feed begins to fail, and when it is well again. It may
	// be nil.
	changed func()

	mu      sync.Mutex
	failing map[string]bool // by the name of the feed
	since   time.Time       // of the first failure
	last    string          // the last error
}

func newLink(log *slog.Logger, now func() time.Time) *link {
	return &link{log: log, now: now, failing: map[string]bool{}}
}

// failed notes that the API server did not give a feed what it asked for.
func (l *link) failed(feed string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing[feed] {
		defer l.tell()
	}
	l.last = feed + ": " + err.Error()
	begins := len(l.failing) == 0
	l.failing[feed] = true
	if begins {
		l.since = l.now()
		l.log.Warn("the API server is away or refuses; the agent goes on with what it knows", "feed", feed, "error", err)
	}
}

// well notes that the API server answered a feed.
func (l *link) well(feed string) { l.remove(feed, "the API server answers again") }

// forget notes that a feed is no more.
func (l *link) forget(feed string) {
	l.remove(feed, "what the API server did not answer is not asked any more")
}

func (l *link) remove(feed, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing[feed] {
		return
	}
	delete(l.failing, feed)
	defer l.tell()
	if len(l.failing) == 0 {
		l.log.Info(message, "after", l.now().Sub(l.since))
		l.since, l.last = time.Time{}, ""
	}
}

// tell tells of a change; changed must not wait for anything.
func (l *link) tell() {
	if l.changed != nil {
		l.changed()
	}
}

// fails tells whether the API server does not answer a feed.
func (l *link) fails(feed string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing[feed]
}

func (l *link) health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Health{Disconnected: l.since, LastError: l.last}
}
