package nfattr

import "sync"

// mostKept bounds the sockets that are kept between requests: so many goroutines ask at a time.
const mostKept = 8

// Sockets keeps sockets of netfilter between requests, of one network namespace: that of the
// threads that call With. After a transaction of nftables that deletes, a close of any socket of
// netfilter in the namespace holds up all transactions there (see CloseLater).
//
// The zero value is ready. Any goroutine may use it.
type Sockets struct {
	mu     sync.Mutex
	kept   []*Socket
	closed bool
}

// With calls f with a socket that no other caller has, and that has no answer to an earlier
// request. A socket of which the last answer was not read to its end is closed.
func (p *Sockets) With(f func(*Socket) error) error {
	s, err := p.take()
	if err != nil {
		return err
	}
	defer p.give(s)
	return f(s)
}

func (p *Sockets) take() (*Socket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.kept); n > 0 {
		s := p.kept[n-1]
		p.kept = p.kept[:n-1]
		return s, nil
	}
	return OpenSocket()
}

func (p *Sockets) give(s *Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || s.unanswered || len(p.kept) == mostKept {
		CloseLater(s.Close)
		return
	}
	p.kept = append(p.kept, s)
}

// Close closes the sockets. Later requests have sockets of their own.
func (p *Sockets) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.kept {
		CloseLater(s.Close)
	}
	p.kept, p.closed = nil, true
}
