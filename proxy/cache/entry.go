package cache

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// staleTTL is the TTL of the records of a stale answer, in seconds (RFC 8767 §4).
	staleTTL = 30
	// messageRoom holds the message of nearly every answer with an address or two: an entry with
	// room for it is one allocation.
	messageRoom = 80
	// RetryAfter is how long after a failure the upstream is not asked again for an entry.
	RetryAfter = 5 * time.Second
)

// Entry is one answer that is kept. Fields without a lock of their own are written before
// Put and not changed.
type Entry struct {
	Query wire.Query
	From  netip.AddrPort

	message []byte // the upstream's
	room    [messageRoom]byte
	zone    *corefile.Zone
	// stored is when the upstream answered, expires when the answer's time is over,
	// staleUntil when it is not even given for want of a better one.
	stored, expires, staleUntil time.Duration

	// The lock of the cache:
	prev, next *Entry // used after it, and before; nil: it is not there
	size       int64  // of the cache's bytes
	replies    map[*policy.View]forms
	replyBytes int64 // the part of size that the replies take
	clients    map[policy.PodRef]bool
	hits       hitCounter
	retryAt    atomic.Int64 // no renewal before, since one failed; 0: none did
}

// NewEntry is an answer that came at the moment now and holds for so long.
func NewEntry(q wire.Query, message []byte, from netip.AddrPort, now, holds time.Duration) *Entry {
	return &Entry{Query: q, From: from, message: message, stored: now, expires: now + holds, staleUntil: now + holds}
}

// older returns the entry as an earlier one; the caller holds the lock.
func (e *Entry) older(by time.Duration) *Entry {
	return &Entry{
		message: e.message, From: e.From, Query: e.Query, zone: e.zone,
		stored: e.stored - by, expires: e.expires - by, staleUntil: e.staleUntil - by,
		size: e.size - e.replyBytes, clients: e.clients,
	}
}

// Fresh tells whether the entry's time is not over. A clock that went back to before it
// was stored tells nothing.
func (e *Entry) Fresh(now time.Duration) bool { return e.stored <= now && now < e.expires }

// Stale tells whether the entry's time is over, and it may be given for want of a better.
func (e *Entry) Stale(now time.Duration) bool { return e.expires <= now && now < e.staleUntil }

// age is the entry's age in seconds, rounded up: no client gets a longer TTL than is
// left.
func (e *Entry) age(now time.Duration) uint32 {
	return uint32((max(now-e.stored, 0) + time.Second - 1) / time.Second)
}

// Message returns the answer as it came. It is the caller's.
func (e *Entry) Message() *dns.Msg {
	m := new(dns.Msg)
	if err := m.Unpack(e.message); err != nil {
		m.Rcode = dns.RcodeServerFailure // it was packed here, or read in place
	}
	return m
}

// Aged returns the answer at the moment now, and the moment from which its
// TTLs count: a whole second, so that the expiry stays the same from hit to hit.
func (e *Entry) Aged(now time.Duration) (m *dns.Msg, base time.Duration) {
	age := e.age(now)
	m = answer.MapTTLs(e.Message(), func(ttl uint32) uint32 { return ttl - min(ttl, age) })
	return m, e.stored + time.Duration(age)*time.Second
}

// AsStale returns the answer for want of a better one, and the moment from which its TTLs
// count: it moves in steps, so that an outage does not write each hit to
// the kernel.
func (e *Entry) AsStale(now time.Duration) (m *dns.Msg, base time.Duration) {
	steps := (max(now-e.expires, 0) + RetryAfter - 1) / RetryAfter
	m = answer.MapTTLs(e.Message(), func(uint32) uint32 { return staleTTL })
	explain(m)
	return m, e.expires + steps*RetryAfter
}

// explain adds to a message of our own that the answer is stale (RFC 8914 §4.4, §4.20).
func explain(m *dns.Msg) {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	code := dns.ExtendedErrorCodeStaleAnswer
	if m.Rcode == dns.RcodeNameError {
		code = dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code}}
	extra := []dns.RR{opt}
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			extra = append(extra, rr)
		}
	}
	m.Extra = extra
}

// Hit notes that the entry was asked for, and tells whether it is to be renewed before it
// ends.
func (e *Entry) Hit(now time.Duration) (renew bool) {
	p := e.zone.Cache.Prefetch
	if p.Amount == 0 || !e.hits.hit(now, p.Within, p.Amount) {
		return false
	}
	return (e.expires-now)*100 <= (e.expires-e.stored)*time.Duration(p.Percent) && int64(now) >= e.retryAt.Load()
}

// Failed notes that a renewal failed at the moment now.
func (e *Entry) Failed(now time.Duration) { e.retryAt.Store(int64(now + RetryAfter)) }

// Retry tells whether a renewal has failed, and whether it is time for another.
func (e *Entry) Retry(now time.Duration) (failed, due bool) {
	at := e.retryAt.Load()
	return at != 0, int64(now) >= at
}

// hitCounter counts how often an entry is asked for, without a gap.
type hitCounter struct {
	count atomic.Int32
	last  atomic.Int64
}

// hit counts a hit, up to most, and tells whether the count is most; after a gap the
// count begins again.
func (h *hitCounter) hit(now, within time.Duration, most int) bool {
	if last := h.last.Swap(int64(now)); int64(now)-last > int64(within) {
		h.count.Store(0)
	}
	return int(h.count.Load()) >= most || int(h.count.Add(1)) >= most
}
