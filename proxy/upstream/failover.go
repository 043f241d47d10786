package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// minTries is how often a query is sent at least, time permitting: a single
	// upstream gets a second chance after a lost packet.
	minTries = 4
	// minRest and maxRest are how long a query waits after a round in which no
	// upstream could be reached: at first, and after some rounds.
	minRest = 50 * time.Millisecond
	maxRest = 400 * time.Millisecond
)

// Responder takes the end of a query, by one call of Packet that returns true, else by one
// call of Done. The calls come from the goroutines that read the upstreams' sockets, or
// from Start, with no lock of this package held. They must not block.
type Responder interface {
	// Packet takes a reply as it came over UDP, with the query's id and question. The
	// packet is lent, and is as long as PacketBytes where it may have been cut. False: the
	// responder does not read such a reply.
	Packet(packet []byte, from netip.AddrPort) bool
	// Done takes the answer or the error. After ErrFault the query may be asked again.
	Done(a Answer, err error)
}

// request is one query at the upstreams of its zone. It fails over in rounds: each round
// asks every upstream once. When the upstreams change, the round continues with the new
// ones. A request has one try at a time, whose end starts the next one: no goroutine
// waits.
type request struct {
	try    try // the present one
	zone   *Zone
	routes *routes
	query  wire.Query
	to     Responder
	order  []*upstream // of room, if it is long enough
	room   [4]*upstream
	asked  map[*upstream]bool // in this round; nil while order is as it was at its begin
	at     int
	end    time.Time
	now    time.Time // when the next try begins
	silent int       // tries that took their time
	before int       // the part of asked in earlier rounds
	pause  time.Duration
	// refused is the last answer after which the next upstream is asked, and last the
	// error of the last try without a reply.
	refused Answer
	last    error
}

var requests = sync.Pool{New: func() any { return new(request) }}

// Start asks the upstreams, the first of them with the batch if there is one. The
// responder may be called before Start returns.
func (z *Zone) Start(q wire.Query, to Responder, batch *Batch) {
	r := requests.Get().(*request)
	z.begin(r, q, to)
	defer z.pool.net(aQuery, r)
	n := z.inFlight.Add(1)
	if config := r.routes.zone; config.MaxConcurrent > 0 && int(n) > config.MaxConcurrent {
		z.pool.stats.Shed.Add(1)
		r.finish(Answer{}, fmt.Errorf("ask the upstreams of zone %s: %w", config.Name, errBusy))
		return
	}
	r.next(batch)
}

func (z *Zone) begin(r *request, q wire.Query, to Responder) {
	r.zone, r.routes, r.query, r.to, r.pause, r.now = z, z.routes.Load(), q, to, minRest, time.Now() // the others are zero, see release
	r.try.owner = r
	r.end = r.now.Add(r.routes.zone.Deadline)
	r.order = z.order(r.routes, r.room[:0])
}

// finish ends the query.
func (r *request) finish(a Answer, err error) {
	z, to := r.zone, r.to
	r.release()
	defer z.pool.net("the answer to a query", nil)
	to.Done(a, err)
}

func (r *request) release() {
	r.zone.inFlight.Add(-1)
	*r = request{}
	requests.Put(r)
}

// packet implements tryOwner.
func (r *request) packet(reply []byte) bool {
	if !r.to.Packet(reply, r.try.u.addr) {
		return false
	}
	r.release()
	return true
}

// tried implements tryOwner.
func (r *request) tried(m *dns.Msg, err error) {
	switch {
	case err != nil:
		r.note(err)
	case Passed(m.Rcode):
		r.now, r.refused = time.Now(), Answer{m, r.try.u.addr}
	default:
		r.finish(Answer{m, r.try.u.addr}, nil)
		return
	}
	r.next(nil)
}

// broken implements tryOwner.
func (r *request) broken() { r.finish(Answer{}, ErrFault) }

// next asks the next upstream. The query ends when all were asked and one of them refused,
// or when its time is over.
func (r *request) next(batch *Batch) {
	for {
		r.zone.pool.step("try")
		u, resort := r.choose()
		switch {
		case u != nil && (!resort || r.refused.Msg == nil):
			r.try.start(u, r.query, r.limits(), r, batch)
			return
		case r.refused.Msg != nil:
			r.finish(r.refused, nil)
			return
		case r.over():
			r.finish(Answer{}, r.error())
			return
		case r.silent == r.before: // none could be reached
			go func() {
				defer r.zone.pool.net(aQuery, r)
				r.rest()
				r.round()
				r.next(nil)
			}()
			return
		}
		r.round()
	}
}

// choose returns the next upstream, nil at the end of a round or of the time, and whether
// it is a last resort.
func (r *request) choose() (u *upstream, resort bool) {
	if now := r.zone.routes.Load(); now != r.routes {
		r.change(now)
	}
	if r.over() {
		return nil, false
	}
	for r.at < len(r.order) && r.asked[r.order[r.at]] {
		r.at++
	}
	if r.at == len(r.order) {
		return nil, false
	}
	r.reserve()
	u = r.order[r.at]
	r.at++
	return u, slices.Contains(r.routes.last, u)
}

// change continues with other upstreams. None is asked twice in a round.
func (r *request) change(to *routes) {
	if r.asked == nil {
		r.asked = map[*upstream]bool{}
	}
	for _, u := range r.order[:r.at] {
		r.asked[u] = true
	}
	r.routes, r.order, r.at = to, r.zone.order(to, r.room[:0]), 0
}

// reserve keeps the last try for the last resort: it goes another way than the endpoints,
// whose list may be old.
func (r *request) reserve() {
	if len(r.routes.last) == 0 || r.end.Sub(r.now) > r.routes.zone.Timeout {
		return
	}
	i := slices.IndexFunc(r.order[r.at:], func(u *upstream) bool { return slices.Contains(r.routes.last, u) })
	if i > 0 {
		r.order[r.at], r.order[r.at+i] = r.order[r.at+i], r.order[r.at]
	}
}

// over tells whether no try is left.
func (r *request) over() bool {
	return r.silent >= max(2*len(r.order), minTries) || !r.now.Before(r.end)
}

// limits returns the bounds of the try that begins now.
func (r *request) limits() bounds {
	z := r.routes.zone
	by := bounds{udp: r.now.Add(z.Timeout), tcp: r.end, maxFails: z.MaxFails, probe: z.Probe, forceTCP: z.ForceTCP}
	if by.udp.After(r.end) {
		by.udp = r.end
	}
	// After a truncated answer TCP has all the time that is left at the last upstream, and
	// a share of it before another one.
	if r.at < len(r.order) {
		by.share = z.Timeout / 2
	}
	if z.ForceTCP {
		by.tcp, by.share = by.udp, 0
	}
	return by
}

// soon are the errors of tries that end without a wait: at an upstream that is known to be
// away, or has no room for a connection.
var soon = []error{errDown, errConns, syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH}

// note counts a try without a reply. A try that ended soon cost little and does not count,
// nor does a try at an upstream that left.
func (r *request) note(err error) {
	r.now, r.last = time.Now(), err
	if r.try.u.gone() {
		return
	}
	r.try.u.failed(r.try.bounds)
	if !slices.ContainsFunc(soon, func(known error) bool { return errors.Is(err, known) }) {
		r.silent++
	}
}

// rest waits after a round in which no upstream could be reached: for a change of the
// upstreams, or a while.
func (r *request) rest() {
	timer := time.NewTimer(min(r.pause, r.end.Sub(r.now)))
	defer timer.Stop()
	select {
	case <-timer.C:
		r.pause = min(2*r.pause, maxRest)
	case <-r.routes.changed:
	}
	r.now = time.Now()
}

// round begins the next round.
func (r *request) round() {
	r.routes = r.zone.routes.Load()
	r.order, r.asked, r.at, r.before = r.zone.order(r.routes, r.room[:0]), nil, 0, r.silent
}

var errNoAddress = errors.New("its Services have no address at the moment")

// error returns why no upstream answered.
func (r *request) error() error {
	z := r.routes.zone
	if r.last == nil {
		var names []string
		for _, ref := range z.Services {
			names = append(names, ref.String())
		}
		return fmt.Errorf("no upstream of zone %s (%s): %w", z.Name, strings.Join(names, ", "), errNoAddress)
	}
	return fmt.Errorf("no upstream of zone %s answered in %v: %w", z.Name, z.Deadline, r.last)
}
