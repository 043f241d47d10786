package proxy

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// holdMost is how long a query waits for its source to be known: a pod's first
	// query may come before the API server has told of its address.
	holdMost = 2 * time.Second
	// heldPerSource and heldMost bound the queries that wait, of one source and of all.
	heldPerSource = 64
	heldMost      = 4096
)

// held is a query that waits.
type held struct {
	source, local netip.Addr // unmapped; local is where it arrived
	stop          func() bool
	query         *task
}

// waiting are the queries that wait, by source. They hold no place among those
// under way: what bounds their time is the timer of each.
type waiting struct {
	mu       sync.Mutex
	bySource map[netip.Addr]map[*held]bool
	all      int
	after    func(time.Duration, func()) (stop func() bool)
}

func newWaiting() waiting {
	return waiting{
		bySource: map[netip.Addr]map[*held]bool{},
		after:    func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
	}
}

// hold makes a query wait until its source is known, and then runs it by who asks;
// who is not known still, after holdMost. That is once, on another goroutine. Not ok:
// there are too many that wait, and it is not run.
func (s *Server) hold(who asker, local netip.Addr, q *task) (ok bool) {
	w := &s.waiting
	h := &held{source: who.addr, local: local, query: q}
	w.mu.Lock()
	defer w.mu.Unlock()
	// It may be known by now: a snapshot that was published since the
	// identification has resumed what was held, and not this.
	if who = s.recognize(h.source, local); who.known {
		s.stats.Held.Add(1)
		h.resume(s, who)
		return true
	}
	of := w.bySource[h.source]
	if len(of) >= heldPerSource || w.all >= heldMost {
		s.stats.HeldOut.Add(1)
		return false
	}
	s.step("hold")
	h.stop = w.after(holdMost, func() { s.giveUp(h) }) // it waits for the lock, if it is that soon
	if of == nil {
		of = map[*held]bool{}
		w.bySource[h.source] = of
	}
	of[h] = true
	w.all++
	s.stats.Held.Add(1)
	return true
}

// resume runs the query on a worker.
func (h *held) resume(s *Server, who asker) {
	h.query.who = who
	s.crew.do(h.query.run)
}

// giveUp ends the wait of a query whose source nobody knows.
func (s *Server) giveUp(h *held) {
	w := &s.waiting
	w.mu.Lock()
	waits := w.bySource[h.source][h]
	if waits {
		w.remove(h)
	}
	w.mu.Unlock()
	if !waits {
		return
	}
	who := s.heldBy(h)
	if !who.known {
		s.stats.HeldOut.Add(1)
	}
	h.resume(s, who)
}

// heldBy tells who is at the source of a query that waits; after a fault nobody.
func (s *Server) heldBy(h *held) (who asker) {
	defer s.net("the identification of a held query")
	s.step("held")
	return s.recognize(h.source, h.local)
}

// remove takes a query from those that wait; the caller holds mu.
func (w *waiting) remove(h *held) {
	of := w.bySource[h.source]
	delete(of, h)
	if len(of) == 0 {
		delete(w.bySource, h.source)
	}
	w.all--
}

// resume lets go on what is held of sources that are known now.
func (s *Server) resume() {
	w := &s.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.bySource {
		for h := range of {
			who := s.heldBy(h)
			if !who.known {
				break // nor are its others
			}
			h.stop()
			w.remove(h)
			h.resume(s, who)
		}
	}
}
