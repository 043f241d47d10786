package underlay

import (
	"context"
	"net/netip"
	"sync"
)

// Fake is an Interface in memory. Its methods may be called from several goroutines.
type Fake struct {
	mu     sync.Mutex
	state  FakeState
	err    error
	events chan struct{}
}

// FakeState is what a Fake returns.
type FakeState struct {
	Tunnels  Tunnels
	NextHops []NextHop
	Sessions Sessions
	// Connections are the remote ends of TCP connections.
	Connections []netip.AddrPort
}

var _ Interface = (*Fake)(nil)

// NewFake returns a Fake without tunnels, routes and sessions.
func NewFake() *Fake { return &Fake{events: make(chan struct{}, 1)} }

// Set sets the state. With quiet the watchers get no token, as from sessions.
func (f *Fake) Set(s FakeState, quiet bool) {
	f.mu.Lock()
	f.state = s
	f.mu.Unlock()
	if quiet {
		return
	}
	select {
	case f.events <- struct{}{}:
	default:
	}
}

// Fail makes every reading fail with err, until it is nil.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Tunnels implements Interface.
func (f *Fake) Tunnels() (Tunnels, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Tunnels, f.err
}

// NextHops implements Interface.
func (f *Fake) NextHops() ([]NextHop, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.NextHops, f.err
}

// Sessions implements Interface.
func (f *Fake) Sessions() (Sessions, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Sessions, f.err
}

// Connections implements Interface.
func (f *Fake) Connections() ([]netip.AddrPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Connections, f.err
}

// Watch implements Interface. One watcher gets each token.
func (f *Fake) Watch(context.Context, func(error)) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events, f.err
}
