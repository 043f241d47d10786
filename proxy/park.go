package proxy

import (
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/share"
)

// maxPark is how long a query waits for its source to be known: a pod's first
// query may come before the API server has reported its address.
const maxPark = 2 * time.Second

// parkedQueries is the bound of the queries that wait, by source. A source has no least, because
// one pod may send from many addresses that are not known.
var parkedQueries = share.Bound{Resource: "queries that wait for their pod", Each: 64, All: 4096}

// parkedQuery is a query that waits for its source to be known.
type parkedQuery struct {
	source, local netip.Addr // unmapped; local is where it arrived
	packet        []byte     // its own: a query has much more room
	to            replier
	stop          func() bool
}

// parked are the queries that wait, by source. They hold no slot: a timer each bounds
// their time.
type parked struct {
	mu       sync.Mutex
	bySource map[netip.Addr]map[*parkedQuery]bool
	all      int
}

// park makes a query wait until its source is known, and then runs it with that identity;
// with an unknown one after maxPark. That is once, on another goroutine. Not ok: too many
// wait, and it is not run.
func (s *Server) park(c identity, p *parkedQuery) (ok bool) {
	w := &s.parked
	p.source = c.addr
	w.mu.Lock()
	defer w.mu.Unlock()
	// It may be known by now: a snapshot that was published since the
	// identification has resumed the parked queries, and not this.
	if c = s.recognize(p.source, p.local); c.known {
		s.stats.Parked.Add(1)
		p.resume(s, c)
		return true
	}
	of := w.bySource[p.source]
	if parkedQueries.Room(len(of), w.all) < 1 {
		s.stats.ParkFailed.Add(1)
		return false
	}
	s.step("park")
	p.stop = s.after(maxPark, func() { s.giveUp(p) }) // it waits for the lock, if it is that soon
	if of == nil {
		of = map[*parkedQuery]bool{}
		w.bySource[p.source] = of
	}
	of[p] = true
	w.all++
	s.stats.Parked.Add(1)
	return true
}

// resume runs the query on another goroutine.
func (p *parkedQuery) resume(s *Server, c identity) {
	q := s.newQuery(p.packet, &c, p.to, s.now())
	q.do(q.unpark)
}

// unpark runs the query if its source is known and has a slot.
func (q *query) unpark() {
	q.s.step("unpark")
	ok := q.client.known
	if ok {
		q.client.limits = q.s.client(&q.client)
		q.slot, ok = q.s.admit(&q.client)
	}
	if !ok {
		q.send(wire.ErrorReply(q.packet, dns.RcodeServerFailure))
		return
	}
	q.start()
}

// giveUp ends the wait of a query whose source does not come to be known.
func (s *Server) giveUp(p *parkedQuery) {
	w := &s.parked
	w.mu.Lock()
	waits := w.bySource[p.source][p]
	if waits {
		w.remove(p)
	}
	w.mu.Unlock()
	if !waits {
		return
	}
	c := s.recognizeParked(p)
	if !c.known {
		s.stats.ParkFailed.Add(1)
	}
	p.resume(s, c)
}

// recognizeParked returns the client at the source of a parked query; after a fault an
// unknown source.
func (s *Server) recognizeParked(p *parkedQuery) (c identity) {
	s.protect("the identification of a parked query", func() {
		s.step("parked")
		c = s.recognize(p.source, p.local)
	})
	return c
}

// remove takes a query out of the parked ones; the caller holds mu.
func (w *parked) remove(p *parkedQuery) {
	of := w.bySource[p.source]
	delete(of, p)
	if len(of) == 0 {
		delete(w.bySource, p.source)
	}
	w.all--
}

// resume lets the queries go on whose sources are known now.
func (s *Server) resume() {
	w := &s.parked
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.bySource {
		for p := range of {
			c := s.recognizeParked(p)
			if !c.known {
				break // nor are the source's others
			}
			p.stop()
			w.remove(p)
			p.resume(s, c)
		}
	}
}
