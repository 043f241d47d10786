package proxy

import (
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/audit"
	"github.com/namegate/namegate/proxy/corefile"
)

// answer is what is known of an ask. Its message is shared and must not be changed.
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
	s      *Server
	config *corefile.Config
	cache  *cache
	next   resolver
}

// keeps returns the settings by which an ask's answer is kept, nil if it is not.
func keeps(c *corefile.Config, a ask) *corefile.Zone {
	if a.options != "" || a.Class != dns.ClassINET {
		return nil
	}
	if z := c.ZoneOf(a.Name); z != nil && z.Cache != nil {
		return z
	}
	return nil
}

func (k *keeper) answer(a ask) (answer, error) {
	if keeps(k.config, a) != nil {
		now := k.s.elapsed()
		switch e := k.cache.get(a); {
		case e == nil || now < e.born: // or the clock went back
		case now < e.end:
			k.s.stats.CacheHits.Add(1)
			k.touch(e, now)
			return k.aged(a, e, now), nil
		case now < e.gone:
			return k.late(a, e, now)
		}
	}
	k.s.stats.CacheMisses.Add(1)
	got, err := k.next.resolve(a)
	return answer{found: got, base: k.s.now()}, err
}

// aged is a kept answer as it is now. Its age is rounded up to whole seconds and
// base with it, so that what its TTLs end at stays the same from hit to hit.
func (k *keeper) aged(a ask, e *entry, now time.Duration) answer {
	age := e.age(now)
	return answer{found: as(a, found{aged(e.msg, age), e.from}), base: k.s.born.Add(e.born + time.Duration(age)*time.Second), how: audit.CacheHit, kept: e}
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

func (f *filler) resolve(a ask) (found, error) {
	got, err := f.next.resolve(a)
	if err != nil {
		return got, err
	}
	if t := f.config.TTL; got.msg.Rcode == dns.RcodeSuccess {
		boundTTLs(got.msg, t.Least, t.Greatest)
	}
	z := keeps(f.config, a)
	if z == nil {
		return got, nil
	}
	seconds := lifetime(a.Question, got.msg, z.Cache)
	if seconds == 0 {
		return got, nil
	}
	now := f.s.elapsed()
	end := now + time.Duration(seconds)*time.Second
	f.cache.put(&entry{found: got, ask: a, zone: z, born: now, end: end, gone: end + z.Cache.ServeStale,
		denial: denies(a.Question, got.msg)})
	return got, nil
}
