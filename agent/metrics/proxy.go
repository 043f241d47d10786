package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/servername"
)

// proxy sends the proxy's totals.
func (e emitter) proxy(p counters.Stats) {
	e.counts("dns_queries_total", "Queries of pods and of the node.", "protocol", by{"udp": p.Queries - p.QueriesTCP, "tcp": p.QueriesTCP})
	e.counts("dns_rejected_packets_total", "Packets that are not a query, and queries from addresses that are not a pod's.", "reason", by{"malformed": p.Malformed, "unknown_source": p.UnknownSources})
	e.verdicts(p)
	for stage, h := range map[string]counters.Histogram{"decision": p.Latency.Decision, "upstream": p.Latency.Upstream, "grant": p.Latency.Grant, "total": p.Latency.Total} {
		e.histogram("dns_latency_seconds", "Duration of selected pods' queries, by stage.", h, "stage", stage)
	}
	e.counts("dns_parked_queries_total", "Queries that were parked until their pod was known, and those of them that failed.", "outcome", by{"all": p.Parked, "failed": p.ParkFailed})
	e.counts("dns_shed_queries_total", "Queries that got SERVFAIL, and connections that were closed, by a limit.", "reason", by{
		"rate": p.RateLimited, "silenced": p.RateSilenced, "pod": p.ShedPod, "all": p.ShedAll, "zone": p.ShedZone, "connections": p.ShedConnections,
	})
	e.counts("dns_limited_queries_total", "Queries that got no data by a limit of a policy.", "limit", by{
		policy.LimitTypes.String(): p.LimitedTypes, policy.LimitLabels.String(): p.LimitedLabels, policy.LimitRate.String(): p.LimitedRate, policy.LimitEncrypted.String(): p.LimitedEncrypted,
	})
	e.counts("dns_cache_questions_total", "Queries by their answer in the cache: present, absent or expired.", "outcome", by{"hit": p.CacheHits, "miss": p.CacheMisses, "stale": p.CacheStale})
	e.gauge("dns_cache_entries", "Cached answers.", float64(p.CacheEntries))
	e.gauge("dns_cache_bytes", "Approximate memory of the cached answers in bytes.", float64(p.CacheBytes))
	e.count("dns_prefetches_total", "Cached answers that were renewed before they expired.", p.Prefetches)
	e.count("dns_followed_questions_total", "Queries for names that the answer to an allowed name points at.", p.Followed)
	e.count("dns_coalesced_questions_total", "Queries that shared the answer of an equal query in flight.", p.Coalesced)
	e.count("dns_untrusted_answers_total", "Answers to allowed names that were not trusted.", p.Dishonest)
	e.counts("dns_grants_total", "Answers for which addresses were to be opened in the kernel.", "outcome", by{"acknowledged": p.Grants, "failed": p.GrantFailures})
	e.counts("dns_addresses_total", "Addresses in answers to allowed names.", "outcome", by{"granted": p.AddressesGranted, "blocked": p.AddressesBlocked, "over": p.AddressesOver})
	e.counts("dns_addresses_in_use_total", "Addresses in use that stayed open at the end of their time.", "reason", by{"answer": p.AddressesRenewed, "connection": p.AddressesKept})
	e.count("dns_use_queries_total", "Queries of the agent for names whose addresses are in use.", p.UseQueries)
	e.count("dns_upstream_queries_total", "Queries sent to upstreams, including retries.", p.UpstreamQueries)
	e.count("dns_upstream_tcp_queries_total", "Queries sent to upstreams over TCP.", p.UpstreamTCP)
	e.count("dns_upstream_failures_total", "Attempts without a reply.", p.UpstreamFailures)
	e.count("dns_upstream_wrong_replies_total", "Ignored replies that do not match a query.", p.WrongReplies)
	e.count("dns_lost_replies_total", "Replies that could not be sent.", p.RepliesLost)
	e.count("dns_faults_total", "Queries that ended in a fault of the proxy.", p.Panics)
	e.gauge("dns_in_flight_queries", "Queries in flight.", float64(p.InFlight))
	e.gauge("dns_tcp_connections", "TCP connections of clients.", float64(p.Connections))
}

func (e emitter) relay(r servername.Stats) {
	e.gauge("servername_connections", "Open connections of rules that require the server name.", float64(r.Connections))
	e.gauge("servername_waiting_connections", "Open connections of these rules whose ClientHello is not complete.", float64(r.Hellos))
	e.counts("servername_connections_total", "Connections that the agent passed on, with a granted server name, or since another rule opens them without one.", "verdict", by{"checked": r.Checked, "unread": r.Unread})
	for reason, n := range r.Denied {
		e.count("servername_resets_total", "Connections that the agent reset.", n, "reason", string(reason))
	}
	e.count("servername_dial_failures_total", "Connections that their destination did not accept.", r.DialFailures)
	e.count("servername_misdirected_total", "Connections to the agent itself, which were reset.", r.Misdirected)
}

func (e emitter) verdicts(p counters.Stats) {
	for _, of := range p.Types {
		for verdict, n := range map[string]uint64{"allowed": of.Allowed, "unmatched": of.Unmatched, "refused": of.Refused, "denied": of.Denied, "blocked": of.Blocked, "failed": of.Failed, "renewed": of.Renewed} {
			e.count("dns_verdicts_total", "Decisions about selected pods' queries.", n, "verdict", verdict, "type", of.Type)
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
