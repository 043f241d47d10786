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

// sockets are the idle sockets towards one upstream.
type sockets struct {
	to     netip.AddrPort
	mu     sync.Mutex
	idle   []*socket
	closed bool
}

// take returns a socket for one query.
func (p *sockets) take() (*socket, error) {
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
	if p.closed || s.uses >= socketUses || len(p.idle) >= idleMost {
		_ = s.Close()
		return
	}
	p.idle = append(p.idle, s)
}

func (p *sockets) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		_ = s.Close()
	}
	p.idle = nil
}
