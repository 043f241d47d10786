package upstream

import (
	"errors"
	"sync"
	"time"
)

const (
	// streamsMost bounds the TCP connections towards one upstream that queries
	// share. While there are fewer, a query gets one on which none is under way: not
	// every server answers out of order.
	streamsMost = 8
	// streamsAlone bounds all of them, with those that carry one query for the second
	// time: some servers close a connection after the first answer.
	streamsAlone = 128
	// streamRoom is how many queries are under way on one of them.
	streamRoom = 256
	// streamIdle is how long one is kept without a query (RFC 7766 §6.2.3: a few
	// seconds).
	streamIdle = 5 * time.Second
)

var errStreams = errors.New("too many of its connections wait for answers")

// streams carry the TCP queries of one upstream, with pipelining and answers in any
// order (RFC 7766 §6.2.1).
type streams struct {
	u    *upstream
	mu   sync.Mutex
	list []*stream
}

// send gives a query a connection; one that is to be alone gets a new one. However
// it fails, it is told to whoever waits for the query.
func (s *streams) send(p *pending, alone bool) {
	st := s.place(p, alone)
	if st == nil {
		p.fail(errStreams)
		return
	}
	if s.u.gone() {
		st.hurry(s.u.now() + lastAnswer) // close may not have seen it
	}
}

func (s *streams) place(p *pending, alone bool) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !alone {
		best, room, open := s.emptiest()
		if best != nil && (room == streamRoom || open >= streamsMost) && best.add(p) {
			return best
		}
		if open >= streamsMost {
			return nil
		}
	}
	if len(s.list) >= streamsAlone {
		return nil
	}
	st := newStream(s.u)
	s.list = append(s.list, st)
	st.add(p)
	if alone {
		st.retire()
	}
	go st.run()
	return st
}

// emptiest returns the connection with the most room, nil if none has any, and how
// many take queries at all; the caller holds mu.
func (s *streams) emptiest() (best *stream, most, open int) {
	for _, st := range s.list {
		room, ok := st.room()
		if ok {
			open++
		}
		if room > most {
			best, most = st, room
		}
	}
	return best, most, open
}

// remove forgets a connection that is closed.
func (s *streams) remove(gone *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.list[:0:0]
	for _, st := range s.list {
		if st != gone {
			kept = append(kept, st)
		}
	}
	s.list = kept
}

func (s *streams) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*stream(nil), s.list...)
}

// sweep ends what is over at the moment now and returns when there is more to do.
func (s *streams) sweep(now time.Duration) (next time.Duration) {
	next = never
	for _, st := range s.all() {
		next = min(next, st.sweep(now))
	}
	return next
}

// moveOn is as for lines.
func (s *streams) moveOn(fails int) {
	for _, st := range s.all() {
		st.moveOn(fails)
	}
}

// close gives what is under way its last moment.
func (s *streams) close(last time.Duration) {
	for _, st := range s.all() {
		st.hurry(last)
	}
}
