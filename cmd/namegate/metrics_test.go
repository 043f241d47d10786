package main

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/proxy"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	said chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.said <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// told is a collector of one status.
type told status

func (told) Describe(ch chan<- *prometheus.Desc) { ch <- descInfo }

func (s told) Collect(ch chan<- prometheus.Metric) { teller(ch).status(status(s)) }

// scraped returns what Prometheus is told of a status, sorted, without comments.
func scraped(t *testing.T, s status) (samples []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(told(s))
	r := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	if r.Code != 200 {
		t.Fatalf("%d: %s", r.Code, r.Body)
	}
	for line := range strings.Lines(r.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	return samples
}

// TestMetrics: each number of the status stands under its own name.
func TestMetrics(t *testing.T) {
	want := []string{
		"namegate_audit_dropped_lines_total 28",
		`namegate_dns_cache_questions_total{outcome="hit"} 17`,
		`namegate_dns_cache_questions_total{outcome="miss"} 18`,
		`namegate_dns_cache_questions_total{outcome="stale"} 19`,
		"namegate_dns_followed_questions_total 21",
		`namegate_dns_held_queries_total{outcome="all"} 10`,
		`namegate_dns_held_queries_total{outcome="failed"} 11`,
		"namegate_dns_prefetches_total 20",
		"namegate_dns_queries_total 9",
		`namegate_dns_shed_queries_total{reason="all"} 14`,
		`namegate_dns_shed_queries_total{reason="connections"} 16`,
		`namegate_dns_shed_queries_total{reason="pod"} 13`,
		`namegate_dns_shed_queries_total{reason="rate"} 12`,
		`namegate_dns_shed_queries_total{reason="zone"} 15`,
		"namegate_dns_upstream_failures_total 23",
		"namegate_dns_upstream_queries_total 22",
		`namegate_dns_verdicts_total{verdict="allowed"} 4`,
		`namegate_dns_verdicts_total{verdict="blocked"} 7`,
		`namegate_dns_verdicts_total{verdict="failed"} 8`,
		`namegate_dns_verdicts_total{verdict="refused"} 6`,
		`namegate_dns_verdicts_total{verdict="unmatched"} 5`,
		"namegate_evicted_grants_total 26",
		"namegate_granted_addresses 25",
		"namegate_repairs_total 27",
		"namegate_selected_pods 24",
		"namegate_snapshot 3",
	}
	s := status{Snapshot: 3, Audit: &auditStatus{Written: 1, Dropped: 28}}
	s.Proxy = proxy.Stats{
		Allowed: 4, Unmatched: 5, Refused: 6, Blocked: 7, Failed: 8, Queries: 9, Held: 10, HeldOut: 11,
		RateLimited: 12, ShedPod: 13, ShedAll: 14, ShedZone: 15, ShedConnections: 16,
		CacheHits: 17, CacheMisses: 18, CacheStale: 19, Prefetches: 20, Followed: 21, UpstreamQueries: 22, UpstreamFailures: 23,
	}
	s.Enforcer = enforcer.Status{Selected: 24, Grants: 25, Evicted: 26, Repairs: 27}
	if d := cmp.Diff(want, scraped(t, s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestMetricsAreDocumented: the table of docs/operations.md has each metric and
// each label's words, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(namegate_[a-z_]+)(?:{([a-z]+)})?` \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		if m[2] == "" {
			said[m[1]] = true
		}
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[3], -1) {
			said[m[1]+"{"+m[2]+"=\""+word[1]+"\"}"] = m[2] != ""
		}
	}
	there := map[string]bool{"namegate_build_info{version=\"v0.1.0\"}": true, "namegate_ready": true, "namegate_api_server_connected": true}
	for _, line := range scraped(t, status{Audit: &auditStatus{}}) {
		name, _, _ := strings.Cut(line, " ")
		there[name] = true
	}
	if d := cmp.Diff(there, said); d != "" {
		t.Errorf("-there +documented:\n%s", d)
	}
}

// TestMetricsPortIsTaken: the agent goes on, and says why there are none.
func TestMetricsPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := &lines{said: make(chan struct{}, 1)}
	a := &agent{log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.keepMetrics(ctx, taken.Addr().String()); close(ended) }()
	<-log.said
	select {
	case <-ended:
		t.Error("it ended")
	default:
	}
	cancel()
	<-ended
	log.mu.Lock()
	defer log.mu.Unlock()
	if got := log.text.String(); !strings.Contains(got, "--metrics-addr") || !strings.Contains(got, "in use") {
		t.Errorf("the log does not say what to do: %s", got)
	}
}
