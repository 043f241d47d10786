package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/namegate/namegate/proxy"
)

// metricsAgain is how long a metrics server that failed waits for its next try.
const metricsAgain = 30 * time.Second

// keepMetrics serves them until ctx ends. A port that another program has is no
// reason to leave pods without DNS.
func (a *agent) keepMetrics(ctx context.Context, addr string) {
	for {
		err := serveMetrics(ctx, addr, a)
		if ctx.Err() != nil {
			return
		}
		a.log.Error("no metrics; trying again", "after", metricsAgain, "error", err)
		if wait(ctx, metricsAgain) != nil {
			return
		}
	}
}

// serveMetrics answers /metrics until ctx ends.
func serveMetrics(ctx context.Context, addr string, a *agent) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &figures{a})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; give another --metrics-addr", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// figures are the agent's own numbers, read when they are asked for.
type figures struct{ agent *agent }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("namegate_"+name, help, labels, nil)
}

var (
	descInfo      = desc("build_info", "The version of the agent; always 1.", "version")
	descReady     = desc("ready", "1 while the agent serves and the latest policies are in force.")
	descConnected = desc("api_server_connected", "1 while the API server answers everything that the agent asks.")
	descSnapshot  = desc("snapshot", "The number of the snapshot in force, counted from the agent's start.")
	descSelected  = desc("selected_pods", "Pods of this node that are default-deny.")
	descGrants    = desc("granted_addresses", "Grants that are open.")
	descEvicted   = desc("evicted_grants_total", "Grants that ended early because their pod had too many.")
	descRepairs   = desc("repairs_total", "How often something of ours that was changed or removed in the kernel was put back.")
	descQueries   = desc("dns_queries_total", "Queries of pods and of the node.")
	descVerdicts  = desc("dns_verdicts_total", "Decisions about selected pods' questions.", "verdict")
	descHeld      = desc("dns_held_queries_total", "Queries that waited for their pod to be known.", "outcome")
	descShed      = desc("dns_shed_queries_total", "Queries that were not worked on.", "reason")
	descCache     = desc("dns_cache_questions_total", "Questions by where their answer was: kept, not kept, or kept and over.", "outcome")
	descPrefetch  = desc("dns_prefetches_total", "Answers that were renewed before their end.")
	descFollowed  = desc("dns_followed_questions_total", "Questions that counted as the allowed name whose answer pointed there.")
	descUpstream  = desc("dns_upstream_queries_total", "Queries sent to upstreams, tries counted.")
	descFailures  = desc("dns_upstream_failures_total", "Tries that no reply came to.")
	descAuditLost = desc("audit_dropped_lines_total", "Lines of the audit log that were lost.")
)

// Describe sends no description: what is collected says what there is.
func (f *figures) Describe(ch chan<- *prometheus.Desc) { ch <- descInfo }

// teller hands numbers to Prometheus.
type teller chan<- prometheus.Metric

func (t teller) gauge(d *prometheus.Desc, v float64, labels ...string) {
	t <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (t teller) count(d *prometheus.Desc, v uint64, labels ...string) {
	t <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect sends the numbers of now.
func (f *figures) Collect(ch chan<- prometheus.Metric) {
	a, tell := f.agent, teller(ch)
	tell.gauge(descInfo, 1, version)
	ready := 0.0
	if a.health.ready() == nil {
		ready = 1
	}
	tell.gauge(descReady, ready)
	s := a.snapshotStatus()
	if a.cluster != nil {
		connected := 1.0
		if s.Away != nil {
			connected = 0
		}
		tell.gauge(descConnected, connected)
	}
	tell.status(s)
}

// status tells the numbers of `namegate status`.
func (t teller) status(s status) {
	t.gauge(descSnapshot, float64(s.Snapshot))
	t.gauge(descSelected, float64(s.Enforcer.Selected))
	t.gauge(descGrants, float64(s.Enforcer.Grants))
	t.count(descEvicted, s.Enforcer.Evicted)
	t.count(descRepairs, s.Enforcer.Repairs)
	t.proxy(s.Proxy)
	if s.Audit != nil {
		t.count(descAuditLost, s.Audit.Dropped)
	}
}

func (t teller) proxy(p proxy.Stats) {
	t.count(descQueries, p.Queries)
	for verdict, n := range map[string]uint64{"allowed": p.Allowed, "unmatched": p.Unmatched, "refused": p.Refused, "blocked": p.Blocked, "failed": p.Failed} {
		t.count(descVerdicts, n, verdict)
	}
	t.count(descHeld, p.Held, "all")
	t.count(descHeld, p.HeldOut, "failed")
	for reason, n := range map[string]uint64{"rate": p.RateLimited, "pod": p.ShedPod, "all": p.ShedAll, "zone": p.ShedZone, "connections": p.ShedConnections} {
		t.count(descShed, n, reason)
	}
	for outcome, n := range map[string]uint64{"hit": p.CacheHits, "miss": p.CacheMisses, "stale": p.CacheStale} {
		t.count(descCache, n, outcome)
	}
	t.count(descPrefetch, p.Prefetches)
	t.count(descFollowed, p.Followed)
	t.count(descUpstream, p.UpstreamQueries)
	t.count(descFailures, p.UpstreamFailures)
}
