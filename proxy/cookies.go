package proxy

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// cookiesHold is for how long the proxy knows whether a resolver gives cookies.
	cookiesHold = 10 * time.Minute
	// cookiesWait bounds how long a query waits until that is known.
	cookiesWait = time.Second
)

// cookies tells whether the upstreams give DNS cookies (RFC 7873), which end at the proxy. A client
// with a resolver's cookies drops replies without (c-ares for 2 minutes), so the proxy gives
// cookies where the resolver does. Where it does not the proxy gives none: with an agent's cookies a
// client would drop the resolver's replies while no agent serves.
type cookies struct {
	s       *Server
	mu      sync.Mutex
	given   bool
	until   time.Duration // the upstreams are asked again from then on; 0: given is not known yet
	asking  bool
	view    wire.AnswerView
	waiting []func()
}

// of returns the cookie to give to the client of a query, nil for none. Not known: the upstreams of
// the zone are asked, and then, unless it is nil, is called after that.
func (c *cookies) of(z *zone, packet []byte, then func()) (cookie []byte, known bool) {
	cookie = wire.Cookie(packet)
	if cookie == nil || wire.HasServerCookie(cookie) {
		return cookie, true
	}
	now := c.s.elapsed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if known = c.until != 0; !known && then != nil {
		c.waiting = append(c.waiting, then)
	}
	if now >= c.until && !c.asking {
		c.asking = true
		c.s.do(func() { c.ask(z) })
	}
	if !c.given {
		cookie = nil
	}
	return cookie, known
}

// ask asks the upstreams of the zone with a cookie of the proxy's own.
func (c *cookies) ask(z *zone) {
	option := []byte{0, dns.EDNS0COOKIE, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	_, _ = rand.Read(option[4:]) // never fails: see its documentation
	q := wire.Query{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}, Flags: wire.RD, Options: string(option)}
	if call, first := c.s.calls.join(q, z, c); first {
		call.start(nil)
	}
}

// answerView implements waiter.
func (c *cookies) answerView() *wire.AnswerView { return &c.view }

// complete implements waiter.
func (c *cookies) complete(o outcome) {
	given, hold := false, cookiesHold
	if o.msg != nil && o.msg.IsEdns0() != nil {
		given = slices.ContainsFunc(o.msg.IsEdns0().Option, func(o dns.EDNS0) bool {
			cookie, ok := o.(*dns.EDNS0_COOKIE)
			return ok && len(cookie.Cookie) > 2*8 // hexadecimal; else it is the proxy's own alone
		})
	}
	c.mu.Lock()
	if o.err != nil {
		given, hold = c.given, cache.RetryAfter
	}
	c.asking, c.given, c.until = false, given, c.s.elapsed()+hold
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, then := range waiting {
		then()
	}
}

// awaitCookie makes the query of a client wait, once, until its cookie is known.
func (q *query) awaitCookie() (waits bool) {
	if q.errand != nil || q.plain && len(q.packet) <= q.view.End+wire.OPTBytes {
		return false
	}
	s := q.s
	z := s.setup.Load().zone(&q.client, "")
	if z == nil {
		return false
	}
	if q.waited {
		q.cookie, _ = z.cookies.of(z, q.packet, nil)
		return false
	}
	batch, epoch := q.batch, q.suspend()
	then := func() {
		if q.resume(epoch) {
			q.do(q.start)
		}
	}
	q.waited, q.batch = true, nil // the batch belongs to the reader
	cookie, known := z.cookies.of(z, q.packet, then)
	if known {
		q.resume(epoch)
		q.cookie, q.batch = cookie, batch
		return false
	}
	s.after(cookiesWait, then)
	return true
}

// withCookie returns the reply with the client's cookie. A reply of the cache stays as it is.
func (q *query) withCookie(reply []byte) []byte {
	if q.cookie == nil {
		return reply
	}
	return wire.AppendCookie(slices.Clone(reply), q.cookie)
}
