package upstream

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// silentFor is how long an upstream that let a query over TCP go unanswered is not asked
// over TCP where another may be: its probes go over UDP and find it well.
const silentFor = 5 * time.Second

var errSilentTCP = errors.New("it answered nothing there a moment ago")

// try is a query at one upstream: over UDP, over TCP where the reply is truncated or too
// many were wrong, and once more without EDNS where the upstream does not understand it
// (RFC 6891 §6.2.2) or answers no queries with EDNS.
type try struct {
	exchange exchange // on the wire now
	u        *upstream
	query    wire.Query
	bounds   bounds
	tcp      bool // the exchange is over TCP
	again    bool // for the second time, on a new connection
	plain    bool // without EDNS
	refused  bool // since the upstream refused it with EDNS
	owner    tryOwner
	room     [queryRoom]byte // for a query that is sent in a batch, which copies it
}

// queryRoom holds nearly every query.
const queryRoom = 128

// tryOwner takes the end of a try, by one call that ends it.
type tryOwner interface {
	// packet takes a reply as it came over UDP. False: it is to be parsed.
	packet(reply []byte) bool
	// tried takes the parsed reply or the error.
	tried(m *dns.Msg, err error)
	// broken ends the query after a panic.
	broken()
}

// start sends the query.
func (t *try) start(u *upstream, q wire.Query, by bounds, owner tryOwner, batch *Batch) {
	t.u, t.query, t.bounds, t.owner = u, q, by, owner
	t.tcp, t.again, t.plain, t.refused = false, false, u.isPlain(), false
	t.send(batch)
}

func (t *try) send(batch *Batch) {
	t.u.stats.Queries.Add(1)
	if t.bounds.forceTCP {
		t.overTCP(t.bounds.tcp)
		return
	}
	t.tcp = false
	var room []byte
	if batch != nil {
		room = t.room[:0]
	}
	t.exchange = t.u.newExchange(t.pack(room), t.query.QuestionEnd(), t.bounds.udp, t.bounds, t)
	t.u.sockets.send(&t.exchange, batch)
}

// pack packs the query into the room, or beside it.
func (t *try) pack(room []byte) []byte {
	packed := t.query.AppendTo(room, 0)
	if t.plain {
		return t.query.WithoutEDNS(packed)
	}
	return packed
}

// afterUDP continues over TCP if UDP gave no complete trustworthy reply.
func (t *try) afterUDP() {
	until := t.bounds.tcp
	if t.bounds.share > 0 {
		if t.u.now() < time.Duration(t.u.silentTCP.Load()) {
			t.owner.tried(nil, fmt.Errorf("ask %s over TCP: %w", t.u.addr, errSilentTCP))
			return
		}
		if share := time.Now().Add(t.bounds.share); share.Before(until) {
			until = share
		}
	}
	t.overTCP(until)
}

func (t *try) overTCP(until time.Time) {
	t.u.pool.step("tcp")
	t.u.stats.TCP.Add(1)
	t.tcp, t.again = true, false
	t.exchange = t.u.newExchange(t.pack(nil), t.query.QuestionEnd(), until, t.bounds, t)
	t.u.conns.send(&t.exchange, false)
}

// replied implements responder.
func (t *try) replied(reply []byte) (read bool) {
	read = true // also after a panic
	defer t.u.pool.net(aQuery, t.owner)
	t.u.pool.step("reply")
	u, plain := t.u, t.refused && t.query.Options == "" // an option of a client may be what it refused
	if !t.tcp && t.owner.packet(reply) {                // it has released the try
		if plain {
			u.askPlainly()
		}
		return true
	}
	t.u.pool.step("parse")
	m := parse(reply, !t.tcp && len(reply) == PacketBytes)
	switch {
	case m == nil || t.tcp && m.Truncated:
		return false
	case m.Truncated:
		t.afterUDP()
	case m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil && !t.plain:
		t.plain, t.refused = true, true
		t.send(nil)
	default:
		if plain && m.Rcode != dns.RcodeFormatError {
			u.askPlainly()
		}
		if t.tcp {
			t.u.silentTCP.Store(0)
		}
		t.owner.tried(m, nil)
	}
	return true
}

// failed implements responder.
func (t *try) failed(err error, lost bool) {
	defer t.u.pool.net(aQuery, t.owner)
	t.u.pool.step("failure")
	switch {
	case !t.tcp && errors.Is(err, errManyWrong):
		t.afterUDP()
	case !t.tcp && errors.Is(err, errEDNS):
		t.plain = true
		t.send(nil)
	case !t.tcp:
		t.owner.tried(nil, fmt.Errorf("ask %s: %w", t.u.addr, err))
	case lost && !t.again:
		t.again = true
		t.exchange = t.u.newExchange(t.pack(nil), t.exchange.end, t.u.created.Add(t.exchange.until), t.bounds, t)
		t.u.conns.send(&t.exchange, true)
	default:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.u.silentTCP.Store(int64(t.u.now() + silentFor))
		}
		t.owner.tried(nil, fmt.Errorf("ask %s over TCP: %w", t.u.addr, err))
	}
}
