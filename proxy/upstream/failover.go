package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// leastTries is how often a query is sent at least, time permitting: a single
	// upstream gets a second chance after a lost packet.
	leastTries = 4
	// restLeast and restMost are how long a query waits after everybody was asked
	// and nobody could be reached: at first, and after some rounds.
	restLeast = 50 * time.Millisecond
	restMost  = 400 * time.Millisecond
)

// tour is the way of one query through the upstreams of its zone, in rounds: in
// each everybody is asked once. If the upstreams change the round goes on with
// those that are there then.
type tour struct {
	z      *Zone
	r      *routes
	order  []*upstream
	asked  map[*upstream]bool // in this round; nil while order is as it was at its begin
	at     int
	end    time.Time
	now    time.Time // when the next try begins
	by     attempt   // of the last
	silent int       // tries that took their time
	before int       // of those, in earlier rounds
	pause  time.Duration
	// refused is the last answer after which the next upstream is asked, and last the
	// error of the last try without a reply.
	refused Answer
	last    error
}

func (z *Zone) begin() tour {
	t := tour{z: z, r: z.routes.Load(), pause: restLeast, now: time.Now()}
	t.end = t.now.Add(t.r.zone.Deadline)
	t.order = z.order(t.r)
	return t
}

// resolve asks one upstream after the other, those that answer first, until one
// gives an answer or the deadline is over.
func (t *tour) resolve(a wire.Query) (Answer, error) {
	for {
		u, resort := t.next()
		if u == nil || resort && t.refused.Msg != nil {
			if t.refused.Msg != nil {
				return t.refused, nil // everybody was asked, and somebody said no
			}
			if !t.rest() {
				return Answer{}, t.error()
			}
			continue
		}
		m, err := u.exchange(a, t.attempt())
		if t.heard(u, m, err) {
			return Answer{m, u.addr}, nil
		}
	}
}

// resume is resolve after the query of the first attempt was sent to u with start, and
// ended so; u is nil if there was nobody to ask.
func (t *tour) resume(a wire.Query, u *upstream, m *dns.Msg, err error) (Answer, error) {
	if u != nil {
		if m, err = u.finish(a, t.by, m, err); t.heard(u, m, err) {
			return Answer{m, u.addr}, nil
		}
	}
	return t.resolve(a)
}

// heard notes how a try at an upstream ended, and tells whether with an answer.
func (t *tour) heard(u *upstream, m *dns.Msg, err error) bool {
	switch {
	case err != nil:
		t.failed(u, err)
		t.last = err
	case Passed(m.Rcode):
		t.now = time.Now()
		t.refused = Answer{m, u.addr}
	default:
		return true
	}
	return false
}

// next returns whom to ask, nil at the end of a round or of the time, and whether
// that is a last resort.
func (t *tour) next() (u *upstream, resort bool) {
	if r := t.z.routes.Load(); r != t.r {
		t.change(r)
	}
	if t.over() {
		return nil, false
	}
	for t.at < len(t.order) && t.asked[t.order[t.at]] {
		t.at++
	}
	if t.at == len(t.order) {
		return nil, false
	}
	t.reserve()
	u = t.order[t.at]
	t.at++
	return u, slices.Contains(t.r.last, u)
}

// change goes on by other upstreams; those asked in this round are not asked twice.
func (t *tour) change(r *routes) {
	if t.asked == nil {
		t.asked = map[*upstream]bool{}
	}
	for _, u := range t.order[:t.at] {
		t.asked[u] = true
	}
	t.r, t.order, t.at = r, t.z.order(r), 0
}

// reserve keeps the time's last try for a last resort: it goes another way than
// the endpoints, whose list may be old.
func (t *tour) reserve() {
	if len(t.r.last) == 0 || t.end.Sub(t.now) > t.r.zone.Timeout {
		return
	}
	i := slices.IndexFunc(t.order[t.at:], func(u *upstream) bool { return slices.Contains(t.r.last, u) })
	if i > 0 {
		t.order = slices.Clone(t.order)
		t.order[t.at], t.order[t.at+i] = t.order[t.at+i], t.order[t.at]
	}
}

// over tells whether no try is left.
func (t *tour) over() bool {
	return t.silent >= max(2*len(t.order), leastTries) || !t.now.Before(t.end)
}

// attempt returns the bounds of the exchange that begins now.
func (t *tour) attempt() attempt {
	z := t.r.zone
	by := attempt{udp: t.now.Add(z.Timeout), tcp: t.end, maxFails: z.MaxFails, probe: z.Probe, forceTCP: z.ForceTCP}
	if by.udp.After(t.end) {
		by.udp = t.end
	}
	// After a truncated answer TCP has all that is left for the last; before, another
	// is to get its turn.
	if t.at < len(t.order) {
		by.share = z.Timeout / 2
	}
	if z.ForceTCP {
		by.tcp, by.share = by.udp, 0
	}
	t.by = by
	return by
}

// soon are the errors of tries that end at once, since nobody is there, or as soon
// as that is known.
var soon = []error{errDown, syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH}

// failed notes a try without a reply. A quick one cost little and does not count;
// nor does one at an upstream that left.
func (t *tour) failed(u *upstream, err error) {
	t.now = time.Now()
	if u.gone() {
		return
	}
	u.failed(t.by)
	for _, known := range soon {
		if errors.Is(err, known) {
			return
		}
	}
	t.silent++
}

// rest begins the next round; false if there is none. After a round in which
// nobody could be reached it waits: for a change of the upstreams, or a while.
func (t *tour) rest() bool {
	if t.over() {
		return false
	}
	if t.silent == t.before {
		timer := time.NewTimer(min(t.pause, t.end.Sub(t.now)))
		defer timer.Stop()
		select {
		case <-timer.C:
			t.pause = min(2*t.pause, restMost)
		case <-t.r.changed:
		}
		t.now = time.Now()
	}
	t.r = t.z.routes.Load()
	t.order, t.asked, t.at, t.before = t.z.order(t.r), nil, 0, t.silent
	return !t.over()
}

var errNobody = errors.New("its Services have no address at the moment")

// error says why nobody answered.
func (t *tour) error() error {
	z := t.r.zone
	if t.last == nil {
		var names []string
		for _, ref := range z.Services {
			names = append(names, ref.String())
		}
		return fmt.Errorf("no upstream of zone %s (%s): %w", z.Name, strings.Join(names, ", "), errNobody)
	}
	return fmt.Errorf("no upstream of zone %s answered in %v: %w", z.Name, z.Deadline, t.last)
}
