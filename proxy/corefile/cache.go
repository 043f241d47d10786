package corefile

import (
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// The defaults and the bounds of cache.
const (
	// An hour is what CoreDNS keeps answers for at most.
	defaultMaxTTL = time.Hour
	// A week is where RFC 8767 §4 caps TTLs.
	maxMaxTTL = 7 * 24 * time.Hour
	// If a TTL is raised by more than an hour, addresses that a name no longer has stay
	// in use, and open; dnsmasq has the same limit.
	maxMinTTL = time.Hour
	// Half a minute is six times the negative TTL of CoreDNS's Kubernetes zones: a name
	// that is created is seen soon.
	defaultNegativeTTL = 30 * time.Second
	// RFC 2308 §5: one to three hours work well, a day makes trouble.
	maxNegativeTTL = 3 * time.Hour
	// An hour is CoreDNS's, and the time in which somebody looks at an outage.
	defaultStale = time.Hour
	// RFC 8767 §5 speaks of days; but a stale answer also opens addresses.
	maxStale = 24 * time.Hour

	// CoreDNS's gap between two questions for a name that is hot.
	defaultWithin = time.Minute
	// TTLs are whole seconds; a gap beyond a day is no gap of a hot name.
	minWithin, maxWithin = time.Second, 24 * time.Hour
	// CoreDNS's share of the time that is left.
	defaultPercent = 10
	// At 0 an answer ends before it is renewed, above 90 it is asked for nearly
	// as often as without a cache.
	minPercent, maxPercent = 1, 90
	// Eleven queries a second for a day, the longest maxWithin: a name that is queried
	// less often is not hot.
	maxAmount = 1_000_000

	// Sixteen of the longest messages (RFC 1035 §4.2.2: 64 KiB) are the 1 MiB
	// that size has to be at least.
	minEntries, minCacheBytes = 16, 1 << 20
	// A million answers of 1 KiB are the 1 GiB that size may be at most.
	maxEntries, maxCacheBytes = 1_000_000, 1 << 30
)

// cache reads "cache [MAX_TTL] { … }" of one block, and gives it to the forwards
// of the block, which are config.Zones from first on.
func (p *parser) cache(zones []fqdn.Name, all []stanza, first int) {
	var line *stanza
	for i, s := range all {
		switch {
		case s.name != "cache":
		case line != nil:
			p.fail(s.errorf("stands in line %d already, write it once in a block", line.line))
		default:
			line = &all[i]
		}
	}
	if line == nil {
		return
	}
	if !slices.ContainsFunc(all, func(s stanza) bool { return s.name == "forward" }) {
		p.fail(line.errorf(`is of the forwards of its block, which has none, write "forward . ADDRESS" beside it or move it to where the forward is`))
		return
	}
	c, err := p.readCache(*line, slices.Contains(zones, ""))
	if err != nil {
		p.fail(err)
		return
	}
	for i := range p.config.Zones[first:] {
		p.config.Zones[first+i].Cache = c
	}
}

// readCache reads the line and its block; root is for the block of the root zone, which
// has the bounds of the whole agent.
func (p *parser) readCache(s stanza, root bool) (*Cache, error) {
	c := &Cache{MaxTTL: defaultMaxTTL}
	var err error
	switch {
	case len(s.args) > 1 || len(s.args) == 1 && strings.TrimLeft(s.args[0], "0123456789+-.") == s.args[0]:
		return nil, s.errorf(`is of its block's zones and takes one time alone, write "cache 1h", and another block for other zones`)
	case len(s.args) == 1:
		if c.MaxTTL, err = s.seconds(s.args[0], "cache 1h", time.Second, maxMaxTTL); err != nil {
			return nil, err
		}
	}
	c.NegativeTTL = min(defaultNegativeTTL, c.MaxTTL)
	if err := p.cacheOptions(c, s, root); err != nil {
		return nil, err
	}
	if c.MinTTL > c.MaxTTL {
		return nil, s.errorf("min_ttl %s is above the maximum TTL, %s, write a lower one", short(c.MinTTL), short(c.MaxTTL))
	}
	return c, nil
}

func (p *parser) cacheOptions(c *Cache, s stanza, root bool) error {
	return s.options("an option of cache", cacheElsewhere,
		bounded("min_ttl", "5s", &c.MinTTL, 0, maxMinTTL, stanza.seconds),
		set("negative_ttl", &c.NegativeTTL, stanza.negativeTTL),
		set("prefetch", &c.Prefetch, stanza.prefetch),
		set("serve_stale", &c.ServeStale, stanza.serveStale),
		p.whole(root, number("entries", "10000", &p.config.CacheEntries, minEntries, maxEntries)),
		p.whole(root, bounded("size", "32MiB", &p.config.CacheBytes, minCacheBytes, maxCacheBytes, stanza.size)))
}

// whole is an option that bounds the whole agent: it is refused outside the root zone's block, or there
// for a second time.
func (p *parser) whole(root bool, o option) option {
	return option{o.name, func(line stanza) error {
		if !root {
			return line.errorf(`bounds what is kept of all zones, write it in the cache of zone "." instead`)
		}
		if err := line.once(p.seen); err != nil {
			return err
		}
		return o.read(line)
	}}
}

// negativeTTL refuses a number, as the first value of CoreDNS's denial is: it counts answers and would be
// taken for seconds.
func (s stanza) negativeTTL() (time.Duration, error) {
	if len(s.args) > 0 && s.args[0] != "0" && strings.Trim(s.args[0], "0123456789") == "" {
		return 0, s.errorf(`takes how long, and %s is CoreDNS's number of answers, write "negative_ttl 30s" here and "entries 10000" in the cache of zone "."`, s.args[0])
	}
	return only(s, "negative_ttl 30s", 0, maxNegativeTTL, stanza.seconds)
}

// prefetch reads AMOUNT [DURATION [PERCENT%]].
func (s stanza) prefetch() (Prefetch, error) {
	const usage = "prefetch 10 1m 10%"
	p := Prefetch{Within: defaultWithin, Percent: defaultPercent}
	if len(s.args) < 1 || len(s.args) > 3 {
		return p, s.errorf("has %d values instead of one to three, write for example %q", len(s.args), usage)
	}
	var err error
	if p.Amount, err = s.count(s.args[0], usage, 0, maxAmount); err != nil {
		return p, err
	}
	if len(s.args) > 1 {
		if p.Within, err = s.span(s.args[1], usage, minWithin, maxWithin); err != nil {
			return p, err
		}
	}
	if len(s.args) > 2 {
		digits, ok := strings.CutSuffix(s.args[2], "%")
		if !ok {
			return p, s.errorf("%q is not a percentage, write for example %q", s.args[2], usage)
		}
		if p.Percent, err = s.count(digits, usage, minPercent, maxPercent); err != nil {
			return p, err
		}
	}
	if p.Amount == 0 {
		return Prefetch{}, nil
	}
	return p, nil
}

// serveStale reads [DURATION].
func (s stanza) serveStale() (time.Duration, error) {
	switch len(s.args) {
	case 0:
		return defaultStale, nil
	case 1:
		return only(s, "serve_stale 1h", time.Second, maxStale, stanza.span)
	}
	return 0, s.errorf(`has no mode, since an upstream is asked first, write "serve_stale %s"`, s.args[0])
}
