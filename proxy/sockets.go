package proxy

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// A socket towards an upstream has a port that the kernel drew at random, one
// query at a time, and a short life: after socketUses queries or socketAge it is
// replaced, so that a port that somebody learned is worth little.
const (
	socketUses = 32
	socketAge  = 10 * time.Second
	idleMost   = 64 // per upstream
)

// socket is connected: the kernel passes on only what the upstream's address sends.
type socket struct {
	*net.UDPConn
	uses int
	born time.Time
}

// lastAnswer is how long the answer of an upstream that left still counts. Who has
// a query there asks elsewhere then.
const lastAnswer = 100 * time.Millisecond

// sockets are those towards one upstream.
type sockets struct {
	to     netip.AddrPort
	mu     sync.Mutex
	idle   []*socket
	busy   map[*socket]bool
	closed bool
}

// take returns a socket for one query, whose reads and writes end at the deadline.
// It goes back with give or drop.
func (p *sockets) take(deadline time.Time) (*socket, error) {
	s, err := p.fresh()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy == nil {
		p.busy = map[*socket]bool{}
	}
	p.busy[s] = true
	if err := s.SetDeadline(p.bounded(deadline)); err != nil {
		delete(p.busy, s)
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// extend moves the deadline of a socket that was taken.
func (p *sockets) extend(s *socket, deadline time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.SetDeadline(p.bounded(deadline))
}

// bounded is the deadline for a query at an upstream that may have left; the
// caller holds mu.
func (p *sockets) bounded(deadline time.Time) time.Time {
	if soon := time.Now().Add(lastAnswer); p.closed && soon.Before(deadline) {
		return soon
	}
	return deadline
}

// fresh returns an idle socket that is young enough, or a new one.
func (p *sockets) fresh() (*socket, error) {
	now := time.Now()
	for {
		s := p.pop()
		if s == nil {
			break
		}
		if now.Sub(s.born) < socketAge {
			return s, nil
		}
		_ = s.Close()
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.to))
	if err != nil {
		return nil, err
	}
	return &socket{UDPConn: c, born: now}, nil
}

func (p *sockets) pop() *socket {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	s := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return s
}

// give takes a socket back whose query was answered.
func (p *sockets) give(s *socket) {
	s.uses++
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, s)
	if p.closed || s.uses >= socketUses || len(p.idle) >= idleMost {
		_ = s.Close()
		return
	}
	p.idle = append(p.idle, s)
}

// drop closes a socket whose query was not: its late reply must not meet the next.
// With it go the idle ones: where the upstream's address is a Service's, they may
// all be tied to the endpoint that died.
func (p *sockets) drop(s *socket) {
	_ = s.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, s)
	for _, s := range p.idle {
		_ = s.Close()
	}
	p.idle = nil
}

// close closes what is idle, and gives what is under way its last moment.
func (p *sockets) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		_ = s.Close()
	}
	p.idle = nil
	soon := time.Now().Add(lastAnswer)
	for s := range p.busy {
		_ = s.SetDeadline(soon) // sooner than it had, or by less than that later
	}
}
