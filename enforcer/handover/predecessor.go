package handover

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// patience is how long an agent may take to end until grants end at the deadlines that
// its successor knows: an agent that hangs must not keep everything open.
const patience = 30 * time.Second

// Predecessor is the agent that served before this one, for as long as it serves.
type Predecessor struct {
	listening func(netip.Addr) bool
	now       func() time.Time

	mu    sync.RWMutex
	addrs map[netip.Addr]netip.Addr // its serving addresses, to the addresses that pods dial
	since time.Time
}

// NewPredecessor returns one that was not looked for yet. listening tells whether a process
// serves DNS on an address, nil for the node's own sockets.
func NewPredecessor(listening func(netip.Addr) bool, now func() time.Time) *Predecessor {
	if listening == nil {
		listening = bound
	}
	return &Predecessor{listening: listening, now: now}
}

// bound tells whether a process serves DNS on an address: then it cannot be bound a second
// time.
func bound(a netip.Addr) bool {
	c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 53).String())
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	c.Close()
	return false
}

// Find finds a predecessor by the serving addresses at which a process listens. dialled
// are the addresses that pods dial for these; an address to which nothing is led has none.
func (p *Predecessor) Find(serving []netip.Addr, dialled map[netip.Addr]netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs, p.since = map[netip.Addr]netip.Addr{}, p.now()
	for _, a := range serving {
		if p.listening(a) {
			p.addrs[a] = dialled[a]
		}
	}
}

// Present tells whether there is a predecessor that was not forgotten.
func (p *Predecessor) Present() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.addrs) > 0
}

// Serves tells whether an address is one of the predecessor's serving addresses.
func (p *Predecessor) Serves(a netip.Addr) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, ok := p.addrs[a]
	return ok
}

// Addrs returns its serving addresses, to the addresses that pods dial for them.
func (p *Predecessor) Addrs() map[netip.Addr]netip.Addr {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.addrs)
}

// Gone tells whether the predecessor does not listen any more.
func (p *Predecessor) Gone() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Keys(p.Addrs())), p.listening)
}

// Overdue tells whether it takes longer to end than grants wait for.
func (p *Predecessor) Overdue() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.now().Sub(p.since) >= patience
}

// Forget ends the overlap.
func (p *Predecessor) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = nil
}
