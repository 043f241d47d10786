package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/proxy"
)

// proxy sends the proxy's totals.
func (e emitter) proxy(p proxy.Stats) {
	e.counts(descQueries, map[string]uint64{"udp": p.Queries - p.QueriesTCP, "tcp": p.QueriesTCP})
	e.counts(descRejected, map[string]uint64{"malformed": p.Malformed, "stranger": p.Strangers})
	e.verdicts(p)
	for stage, h := range map[string]proxy.Histogram{"decision": p.Latency.Decision, "upstream": p.Latency.Upstream, "grant": p.Latency.Grant, "total": p.Latency.Total} {
		e.histogram(descLatency, h, stage)
	}
	e.counts(descHeld, map[string]uint64{"all": p.Held, "failed": p.HeldOut})
	e.counts(descShed, map[string]uint64{"rate": p.RateLimited, "silenced": p.RateSilenced, "pod": p.ShedPod, "all": p.ShedAll, "zone": p.ShedZone, "connections": p.ShedConnections})
	e.counts(descCache, map[string]uint64{"hit": p.CacheHits, "miss": p.CacheMisses, "stale": p.CacheStale})
	e.gauge(descEntries, float64(p.CacheEntries))
	e.gauge(descBytes, float64(p.CacheBytes))
	e.count(descPrefetch, p.Prefetches)
	e.count(descFollowed, p.Followed)
	e.count(descCoalesced, p.Coalesced)
	e.count(descUntrusted, p.Dishonest)
	e.counts(descGranting, map[string]uint64{"acknowledged": p.Grants, "failed": p.GrantFailures})
	e.counts(descAddresses, map[string]uint64{"granted": p.AddressesGranted, "blocked": p.AddressesBlocked, "over": p.AddressesOver})
	e.count(descUpstream, p.UpstreamQueries)
	e.count(descUpstreamTCP, p.UpstreamTCP)
	e.count(descFailures, p.UpstreamFailures)
	e.count(descWrong, p.WrongReplies)
	e.count(descLost, p.RepliesLost)
	e.count(descFaults, p.Panics)
	e.gauge(descInFlight, float64(p.InFlight))
	e.gauge(descConnections, float64(p.Connections))
}

func (e emitter) verdicts(p proxy.Stats) {
	for _, of := range p.Types {
		for verdict, n := range map[string]uint64{"allowed": of.Allowed, "unmatched": of.Unmatched, "refused": of.Refused, "blocked": of.Blocked, "failed": of.Failed} {
			e.count(descVerdicts, n, verdict, of.Type)
		}
	}
}

// bucketBounds are the proxy's, in seconds.
var bucketBounds = seconds(proxy.Bounds())

func seconds(bounds []time.Duration) (out []float64) {
	for _, b := range bounds {
		out = append(out, b.Seconds())
	}
	return out
}

// histogram sends h with cumulative buckets, as Prometheus has them.
func (e emitter) histogram(d *prometheus.Desc, h proxy.Histogram, labels ...string) {
	buckets, n := make(map[float64]uint64, len(bucketBounds)), uint64(0)
	for i, bound := range bucketBounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	e <- prometheus.MustNewConstHistogram(d, n+h.Counts[len(bucketBounds)], h.Sum.Seconds(), buckets, labels...)
}
