package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/proxy/counters"
)

// proxy sends the proxy's totals.
func (e emitter) proxy(p counters.Stats) {
	e.counts("dns_queries_total", "Queries of pods and of the node.", "protocol", by{"udp": p.Queries - p.QueriesTCP, "tcp": p.QueriesTCP})
	e.counts("dns_rejected_packets_total", "Packets that are no query, and queries from addresses that are no pod's.", "reason", by{"malformed": p.Malformed, "stranger": p.Strangers})
	e.verdicts(p)
	for stage, h := range map[string]counters.Histogram{"decision": p.Latency.Decision, "upstream": p.Latency.Upstream, "grant": p.Latency.Grant, "total": p.Latency.Total} {
		e.histogram("dns_latency_seconds", "How long selected pods' questions took, and what for.", h, "stage", stage)
	}
	e.counts("dns_held_queries_total", "Queries that waited for their pod to be known.", "outcome", by{"all": p.Held, "failed": p.HeldOut})
	e.counts("dns_shed_queries_total", "Queries that were not worked on.", "reason", by{
		"rate": p.RateLimited, "silenced": p.RateSilenced, "pod": p.ShedPod, "all": p.ShedAll, "zone": p.ShedZone, "connections": p.ShedConnections,
	})
	e.counts("dns_cache_questions_total", "Questions by where their answer was: kept, not kept, or kept and over.", "outcome", by{"hit": p.CacheHits, "miss": p.CacheMisses, "stale": p.CacheStale})
	e.gauge("dns_cache_entries", "Answers that are kept.", float64(p.CacheEntries))
	e.gauge("dns_cache_bytes", "About how many bytes they take.", float64(p.CacheBytes))
	e.count("dns_prefetches_total", "Answers that were renewed before their end.", p.Prefetches)
	e.count("dns_followed_questions_total", "Questions that counted as the allowed name whose answer pointed there.", p.Followed)
	e.count("dns_coalesced_questions_total", "Questions that shared the answer of one under way.", p.Coalesced)
	e.count("dns_untrusted_answers_total", "Answers to allowed names that were not trusted.", p.Dishonest)
	e.counts("dns_grants_total", "Answers whose addresses the kernel was asked to open.", "outcome", by{"acknowledged": p.Grants, "failed": p.GrantFailures})
	e.counts("dns_addresses_total", "Addresses of answers to allowed names.", "outcome", by{"granted": p.AddressesGranted, "blocked": p.AddressesBlocked, "over": p.AddressesOver})
	e.count("dns_upstream_queries_total", "Queries sent to upstreams, tries counted.", p.UpstreamQueries)
	e.count("dns_upstream_tcp_queries_total", "Queries sent to upstreams over TCP.", p.UpstreamTCP)
	e.count("dns_upstream_failures_total", "Tries that no reply came to.", p.UpstreamFailures)
	e.count("dns_upstream_wrong_replies_total", "Replies that answer something else; they are ignored.", p.WrongReplies)
	e.count("dns_lost_replies_total", "Replies that could not be sent.", p.RepliesLost)
	e.count("dns_faults_total", "Queries that ended in a fault of the proxy.", p.Panics)
	e.gauge("dns_in_flight_queries", "Queries under way.", float64(p.InFlight))
	e.gauge("dns_tcp_connections", "TCP connections of clients.", float64(p.Connections))
}

func (e emitter) verdicts(p counters.Stats) {
	for _, of := range p.Types {
		for verdict, n := range map[string]uint64{"allowed": of.Allowed, "unmatched": of.Unmatched, "refused": of.Refused, "blocked": of.Blocked, "failed": of.Failed} {
			e.count("dns_verdicts_total", "Decisions about selected pods' questions.", n, "verdict", verdict, "type", of.Type)
		}
	}
}

// bucketBounds are the proxy's, in seconds.
var bucketBounds = seconds(counters.Bounds())

func seconds(bounds []time.Duration) (out []float64) {
	for _, b := range bounds {
		out = append(out, b.Seconds())
	}
	return out
}

// histogram sends h with cumulative buckets, as Prometheus has them.
func (e emitter) histogram(name, help string, h counters.Histogram, labels ...string) {
	d, values := describe(name, help, labels)
	buckets, n := make(map[float64]uint64, len(bucketBounds)), uint64(0)
	for i, bound := range bucketBounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	e <- prometheus.MustNewConstHistogram(d, n+h.Counts[len(bucketBounds)], h.Sum.Seconds(), buckets, values...)
}
