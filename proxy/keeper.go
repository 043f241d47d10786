package proxy

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// answer is what is known of a query's answer. Its message is shared and must not be changed.
type answer struct {
	found
	// base is the moment from which on the message's TTLs count.
	base time.Time
	how  audit.Cache
	kept *entry // that it was taken from; nil where it was not kept before
}

// keeper answers what a client asks: what is kept is given at once, the rest
// is asked for.
type keeper struct {
	s       *Server
	config  *corefile.Config
	cache   *cache
	warmed  *cache   // what warm-ups were answered
	next    resolver // flights, but in tests that want none
	flights *inflight
	filler  *filler
	// forwards is nil where there are no upstreams to fly to.
	forwards *upstream.Pool
	// renewals are those under way.
	renewals atomic.Int32
}

// forward returns the upstreams for a name, nil if there are none.
func (k *keeper) forward(n fqdn.Name) *upstream.Zone {
	if k.forwards == nil {
		return nil
	}
	return k.forwards.Zone(n)
}

// keeps returns the settings by which a query's answer is kept, nil if it is not.
func keeps(c *corefile.Config, a wire.Query) *corefile.Zone {
	if a.Options != "" || a.Class != dns.ClassINET {
		return nil
	}
	if z := c.ZoneOf(a.Name); z != nil && z.Cache != nil {
		return z
	}
	return nil
}

// answerGiven is answer where what the upstreams say may be known. quiet: no client
// asks, so a cache hit is none.
func (k *keeper) answerGiven(a wire.Query, given *outcome, quiet bool) (answer, error) {
	if given == nil {
		return k.answer(a, quiet)
	}
	k.s.stats.CacheMisses.Add(1)
	return answer{found: given.found, base: k.s.now()}, given.err
}

func (k *keeper) answer(a wire.Query, quiet bool) (answer, error) {
	if keeps(k.config, a) != nil {
		now := k.s.elapsed()
		switch e := k.cache.get(a, now); {
		case e == nil || now < e.born: // or the clock went back
		case now < e.end:
			if !quiet {
				k.s.stats.CacheHits.Add(1)
				k.touch(e, now)
			}
			return k.aged(a, e, now), nil
		case now < e.gone:
			return k.late(a, e, now)
		}
	}
	return k.fetch(a)
}

// fetch asks for what is not kept.
func (k *keeper) fetch(a wire.Query) (answer, error) {
	k.s.stats.CacheMisses.Add(1)
	k.s.step("miss")
	got, err := k.next.resolve(a)
	return answer{found: got, base: k.s.now()}, err
}

// aged is a kept answer as it is now. Its age is rounded up to whole seconds and
// base with it, so that what its TTLs end at stays the same from hit to hit.
func (k *keeper) aged(a wire.Query, e *entry, now time.Duration) answer {
	age := e.age(now)
	return answer{found: as(a, found{retold(e.message(), func(ttl uint32) uint32 { return ttl - min(ttl, age) }), e.from}), base: k.s.at(e.born + time.Duration(age)*time.Second), how: audit.CacheHit, kept: e}
}

// age is how old the entry is in seconds, rounded up: nobody is told more time
// than is left.
func (e *entry) age(now time.Duration) uint32 {
	return uint32((max(now-e.born, 0) + time.Second - 1) / time.Second)
}

// filler is the resolver that keeps what the upstreams say.
type filler struct {
	s      *Server
	config *corefile.Config
	cache  *cache
	next   resolver
}

func (f *filler) resolve(a wire.Query) (found, error) {
	f.s.step("ask")
	got, err := f.next.resolve(a)
	f.s.step("asked")
	if err == nil {
		f.fill(a, got)
	}
	return got, err
}

// fill puts the TTLs of an answer that came now, and that nobody shares yet,
// within their bounds, and keeps it if it is one to keep.
func (f *filler) fill(a wire.Query, got found) {
	if t := f.config.TTL; got.msg.Rcode == dns.RcodeSuccess {
		boundTTLs(got.msg, t.Least, t.Greatest)
	}
	z := keeps(f.config, a)
	if z == nil {
		return
	}
	seconds := lifetime(a.Question, got.msg, z.Cache)
	if seconds == 0 || meant(got.msg) {
		return
	}
	packed := *got.msg
	packed.Compress = true
	if wire, err := packed.Pack(); err == nil {
		f.put(&entry{wire: wire, from: got.from, query: a, zone: z, nowhere: nowhere(got.msg)}, seconds)
	}
}

// put keeps an answer that came now for so many seconds.
func (f *filler) put(e *entry, seconds uint32) {
	e.born = f.s.elapsed()
	e.end = e.born + time.Duration(seconds)*time.Second
	e.gone = e.end + e.zone.Cache.ServeStale
	f.cache.put(e)
}
