package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/proxy"
)

// proxy tells the proxy's totals.
func (t teller) proxy(p proxy.Stats) {
	t.counts(descQueries, map[string]uint64{"udp": p.Queries - p.QueriesTCP, "tcp": p.QueriesTCP})
	t.counts(descRejected, map[string]uint64{"malformed": p.Malformed, "stranger": p.Strangers})
	t.verdicts(p)
	for stage, h := range map[string]proxy.Histogram{"decision": p.Latency.Decision, "upstream": p.Latency.Upstream, "grant": p.Latency.Grant, "total": p.Latency.Total} {
		t.histogram(descLatency, h, stage)
	}
	t.counts(descHeld, map[string]uint64{"all": p.Held, "failed": p.HeldOut})
	t.counts(descShed, map[string]uint64{"rate": p.RateLimited, "silenced": p.RateSilenced, "pod": p.ShedPod, "all": p.ShedAll, "zone": p.ShedZone, "connections": p.ShedConnections})
	t.counts(descCache, map[string]uint64{"hit": p.CacheHits, "miss": p.CacheMisses, "stale": p.CacheStale})
	t.gauge(descEntries, float64(p.CacheEntries))
	t.gauge(descBytes, float64(p.CacheBytes))
	t.count(descPrefetch, p.Prefetches)
	t.count(descFollowed, p.Followed)
	t.count(descCoalesced, p.Coalesced)
	t.count(descUntrusted, p.Dishonest)
	t.counts(descGranting, map[string]uint64{"acknowledged": p.Grants, "failed": p.GrantFailures})
	t.counts(descAddresses, map[string]uint64{"granted": p.AddressesGranted, "blocked": p.AddressesBlocked, "over": p.AddressesOver})
	t.count(descUpstream, p.UpstreamQueries)
	t.count(descUpstreamTCP, p.UpstreamTCP)
	t.count(descFailures, p.UpstreamFailures)
	t.count(descWrong, p.WrongReplies)
	t.count(descLost, p.RepliesLost)
	t.count(descFaults, p.Panics)
	t.gauge(descInFlight, float64(p.InFlight))
	t.gauge(descConnections, float64(p.Connections))
}

func (t teller) verdicts(p proxy.Stats) {
	for _, of := range p.Types {
		for verdict, n := range map[string]uint64{"allowed": of.Allowed, "unmatched": of.Unmatched, "refused": of.Refused, "blocked": of.Blocked, "failed": of.Failed} {
			t.count(descVerdicts, n, verdict, of.Type)
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

// histogram tells one whose buckets Prometheus wants with those below them.
func (t teller) histogram(d *prometheus.Desc, h proxy.Histogram, labels ...string) {
	buckets, n := make(map[float64]uint64, len(bucketBounds)), uint64(0)
	for i, bound := range bucketBounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	t <- prometheus.MustNewConstHistogram(d, n+h.Counts[len(bucketBounds)], h.Sum.Seconds(), buckets, labels...)
}
