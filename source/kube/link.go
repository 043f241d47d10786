package kube

import (
	"log/slog"
	"sync"
	"time"
)

// Health is a Source's connection to the API server.
type Health struct {
	// Synced is true from the moment at which everything was known once. It stays true,
	// because known objects stay in force.
	Synced bool
	// Disconnected is since when the API server is unavailable or refuses requests; zero
	// while all is well.
	Disconnected time.Time
	// LastError is why, "" while all is well.
	LastError string
}

// link notes which list-watches the API server does not answer. It logs when the first
// begins to fail and when the last succeeds again, and nothing between.
type link struct {
	log *slog.Logger
	now func() time.Time
	// changed is called when a list-watch begins to fail, and when it succeeds again. It
	// may be nil.
	changed func()

	mu      sync.Mutex
	running map[string]int  // list-watches by their name: one may begin before one of its name has ended
	failing map[string]bool // by the name of the list-watch
	since   time.Time       // of the first failure
	last    string          // the last error
}

func newLink(log *slog.Logger, now func() time.Time) *link {
	return &link{log: log, now: now, running: map[string]int{}, failing: map[string]bool{}}
}

// failed notes that the API server refused or did not answer a list-watch.
func (l *link) failed(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing[name] {
		defer l.notify()
	}
	l.last = name + ": " + err.Error()
	begins := len(l.failing) == 0
	l.failing[name] = true
	if begins {
		l.since = l.now()
		l.log.Warn("the API server is away or refuses; the agent goes on with what it knows", "feed", name, "error", err)
	}
}

// well notes that the API server answered a list-watch.
func (l *link) well(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(name, "the API server answers again")
}

// begin notes that a list-watch begins.
func (l *link) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[name]++
}

// end notes that a list-watch has ended. It fails on while another of its name runs.
func (l *link) end(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[name]--; l.running[name] > 0 {
		return
	}
	delete(l.running, name)
	l.remove(name, "requests that the API server did not answer are cancelled")
}

// remove ends the failure of a list-watch; mu is held.
func (l *link) remove(name, message string) {
	if !l.failing[name] {
		return
	}
	delete(l.failing, name)
	defer l.notify()
	if len(l.failing) == 0 {
		l.log.Info(message, "after", l.now().Sub(l.since))
		l.since, l.last = time.Time{}, ""
	}
}

// notify reports a change; changed must not wait for anything.
func (l *link) notify() {
	if l.changed != nil {
		l.changed()
	}
}

// fails tells whether the API server does not answer a list-watch.
func (l *link) fails(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing[name]
}

func (l *link) health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Health{Disconnected: l.since, LastError: l.last}
}
