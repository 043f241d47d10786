package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// lastAnswer is how long the answer of an upstream that left still counts. Who has
// a query there asks elsewhere then.
const lastAnswer = 100 * time.Millisecond

// upstream is one resolver that is asked.
type upstream struct {
	addr    netip.AddrPort
	pool    *Pool
	stats   *counters // of the pool
	born    time.Time
	lines   trunk
	streams streams
	clock   clock
	// silentTCP is the moment until which it is not asked over TCP, a time.Duration.
	silentTCP atomic.Int64
	health
	here  context.Context // until it leaves
	leave context.CancelFunc
}

func newUpstream(addr netip.AddrPort, p *Pool) *upstream {
	here, leave := context.WithCancel(context.Background())
	u := &upstream{addr: addr, pool: p, stats: &p.stats, born: time.Now(), here: here, leave: leave}
	u.lines.u, u.streams.u = u, u
	u.clock.at.Store(int64(never))
	u.heard.Store(-1)
	return u
}

// close is for an upstream that left: what is under way there ends soon.
func (u *upstream) close() {
	u.leave()
	last := u.now() + lastAnswer
	u.lines.close(last)
	u.streams.close(last)
}

// gone tells whether the upstream has left.
func (u *upstream) gone() bool { return u.here.Err() != nil }

// attempt bounds one exchange.
type attempt struct {
	udp, tcp time.Time     // when each is over
	share    time.Duration // of TCP after UDP, 0 for as much as there is
	maxFails int           // of the zone: 0 doubts nobody
	probe    time.Duration // of the zone; 0 is probeEvery
	forceTCP bool          // of the zone
}

// exchange asks once: over UDP, and if the reply is truncated, or too many were
// wrong, over TCP. Replies that answer something else are counted and waited past.
// Who does not understand EDNS is asked again without (RFC 6891 §6.2.2).
func (u *upstream) exchange(a wire.Query, by attempt) (*dns.Msg, error) {
	m, err := u.single(a, a.Pack(0), by)
	return u.understood(a, by, m, err)
}

// finish is exchange from when the query of start has ended, over UDP.
func (u *upstream) finish(a wire.Query, by attempt, m *dns.Msg, err error) (*dns.Msg, error) {
	m, err = u.whole(a, a.Pack(0), by, m, err)
	return u.understood(a, by, m, err)
}

// understood asks without EDNS where the reply says that EDNS is not understood.
func (u *upstream) understood(a wire.Query, by attempt, m *dns.Msg, err error) (*dns.Msg, error) {
	if err == nil && m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil {
		return u.single(a, a.PackWithoutEDNS(0), by)
	}
	return m, err
}

// single asks with the query, whose id is drawn where it is sent.
func (u *upstream) single(a wire.Query, query []byte, by attempt) (*dns.Msg, error) {
	u.stats.Queries.Add(1)
	if by.forceTCP {
		return u.onlyTCP(a, query, by)
	}
	m, err := u.overUDP(query, a.QuestionEnd(), by)
	return u.whole(a, query, by, m, err)
}

// whole asks over TCP where UDP gave no whole reply that can be trusted.
func (u *upstream) whole(a wire.Query, query []byte, by attempt, m *dns.Msg, err error) (*dns.Msg, error) {
	if err != nil && !errors.Is(err, errManyWrong) {
		return nil, fmt.Errorf("ask %s: %w", u.addr, err)
	}
	if err == nil && !m.Truncated {
		return m, nil
	}
	if by.share > 0 {
		if u.now() < time.Duration(u.silentTCP.Load()) {
			return nil, fmt.Errorf("ask %s over TCP: %w", u.addr, errSilentTCP)
		}
		by.tcp = earlier(by.tcp, time.Now().Add(by.share))
	}
	return u.onlyTCP(a, query, by)
}

func (u *upstream) onlyTCP(a wire.Query, query []byte, by attempt) (*dns.Msg, error) {
	u.stats.TCP.Add(1)
	m, err := u.overTCP(query, a.QuestionEnd(), by)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			u.silentTCP.Store(int64(u.now() + silentFor))
		}
		return nil, fmt.Errorf("ask %s over TCP: %w", u.addr, err)
	}
	u.silentTCP.Store(0)
	return m, nil
}

// silentFor is how long an upstream that let a query over TCP go unanswered is
// not asked over TCP where another may be: its probes go over UDP and find it well.
const silentFor = 5 * time.Second

var errSilentTCP = errors.New("it answered nothing there a moment ago")

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (u *upstream) overUDP(query []byte, end int, by attempt) (*dns.Msg, error) {
	p := u.newPending(query, end, by.udp, by)
	u.lines.send(p, false)
	m, _, err := p.wait()
	return m, err
}

// start asks once, over UDP: the query is in the batch when start returns,
// and to is told how it ended.
func (u *upstream) start(a wire.Query, by attempt, to taker, with *Batch) {
	u.stats.Queries.Add(1)
	p := u.newPending(a.Pack(0), a.QuestionEnd(), by.udp, by)
	p.to = to
	u.lines.write(p, with)
}

func (u *upstream) overTCP(query []byte, end int, by attempt) (*dns.Msg, error) {
	for again := false; ; again = true {
		p := u.newPending(query, end, by.tcp, by)
		u.streams.send(p, again)
		if m, lost, err := p.wait(); !lost || again {
			return m, err
		}
	}
}

func (u *upstream) newPending(query []byte, end int, until time.Time, by attempt) *pending {
	p := newPending(query, end)
	p.zone = by
	p.began, p.until = u.now(), until.Sub(u.born)
	p.doubt = p.until
	if by.maxFails > 0 {
		p.doubt = min(p.began+doubtAfter, p.until)
	}
	return p
}

// parse is parse for a reader of its sockets, which goes on after a fault in it: the
// reply counts as one that cannot be read.
func (u *upstream) parse(reply []byte, cut bool) (m *dns.Msg) {
	defer u.pool.net("the reading of an upstream's reply")
	u.pool.step("parse")
	return parse(reply, cut)
}

// parse returns the message of a reply that answers its query, nil if it cannot be
// read. One that was cut off, by its sender or by our buffer, is a truncated
// message without records.
func parse(reply []byte, cut bool) *dns.Msg {
	m := new(dns.Msg)
	switch {
	case len(reply) == wire.HeaderBytes: // a bare FORMERR, see wire.Answers
		m.Response, m.Rcode = true, dns.RcodeFormatError
	case cut || reply[2]&0x02 != 0:
		m.Truncated = true
	case m.Unpack(reply) != nil:
		return nil
	}
	return m
}
