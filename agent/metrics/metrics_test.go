package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/servername"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
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

func registryOf(t *testing.T, f Facts, timed *Timing) *prometheus.Registry {
	t.Helper()
	if timed == nil {
		timed = NewTiming(time.Now)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{func() Facts { return f }, timed})
	return registry
}

// exposition returns the text that Prometheus scrapes.
func exposition(t *testing.T, f Facts, timed *Timing) string {
	t.Helper()
	r := httptest.NewRecorder()
	promhttp.HandlerFor(registryOf(t, f, timed), promhttp.HandlerOpts{}).ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	diff.MustEqual(t, 200, r.Code, r.Body)
	return r.Body.String()
}

// scraped returns the samples of exposition: each value by its name and labels.
func scraped(t *testing.T, f Facts, timed *Timing) map[string]string {
	t.Helper()
	samples := map[string]string{}
	for line := range strings.Lines(exposition(t, f, timed)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			at := strings.LastIndex(line, " ")
			samples[line[:at]] = line[at+1:]
		}
	}
	return samples
}

func ptr[T any](v T) *T { return &v }

// TestMetrics: each number has its own metric, with the names, types, helps and labels
// that dashboards and alerts use.
func TestMetrics(t *testing.T) {
	f := Facts{Version: "dev", Dataplane: stats.Dataplane{Name: "iptables", Variant: "nft"},
		Ready: true, InSync: true, EnforceNetworkPolicies: true, APIServerAway: ptr(false), Snapshot: 3, BrokenFiles: ptr(29),
		Problems:  []policy.Problem{{Reason: "Invalid"}, {Reason: "AddressConflict"}, {Reason: "AddressConflict"}, {Reason: "Strange"}},
		Findings:  findings(status.IPVS, 31),
		Upstreams: []upstream.Status{{Zone: ".", Up: 32, Down: 33}},
		Denied:    Denied{Over: 39, Lost: 59, Packets: ptr(uint64(30)), Flows: denial.New(denial.Options{}).Totals()},
		Audit:     &Audit{36, 37, 38},
		Enforcer:  stats.Enforcer{Selected: 24, Grants: 25, Evicted: 26, Repairs: 27, Refused: 28, Intercepting: true, FullestRule: 65, AtBound: []string{"shop/a", "shop/b"}},
		Proxy: counters.Stats{Proxy: stats.Proxy{Counters: stats.Counters[uint64]{
			Queries: 9, QueriesTCP: 2, Parked: 10, ParkFailed: 11, RateLimited: 12, ShedPod: 13, ShedAll: 14, ShedConnections: 16,
			CacheHits: 17, CacheMisses: 18, CacheStale: 19, Prefetches: 20, Followed: 21,
			Malformed: 40, UnknownSources: 41, RateSilenced: 42, Coalesced: 45, Dishonest: 46, Grants: 47, GrantFailures: 48,
			AddressesGranted: 49, AddressesBlocked: 50, AddressesOver: 51, RepliesLost: 52, Panics: 53, UseQueries: 61, AddressesRenewed: 62, AddressesKept: 63,
		}, ShedZone: 15, UpstreamQueries: 22, UpstreamFailures: 23, UpstreamTCP: 43, WrongReplies: 44, InFlight: 54, Connections: 55, CacheEntries: 56, CacheBytes: 57}},
	}
	f.Relay = servername.Stats{Connections: 67, Hellos: 68, Checked: 69, Unread: 70, DialFailures: 71, Misdirected: 72, Denied: map[servername.Reason]uint64{
		servername.ReasonPolicy: 73, servername.ReasonServerName: 74, servername.ReasonLimit: 75, servername.ReasonRevoked: 76, servername.ReasonShutdown: 77,
	}}
	f.Proxy.Types[0] = counters.TypeVerdicts{Type: "A", Allowed: 4, Unmatched: 5, Refused: 6, Blocked: 7, Failed: 8, Denied: 60, Renewed: 64}
	f.Proxy.Types[1] = counters.TypeVerdicts{Type: "MX", Failed: 58}
	for i := 2; i < len(f.Proxy.Types); i++ {
		f.Proxy.Types[i].Type = string(rune('a' + i)) // each its own
	}
	counts := map[denial.Total]uint64{
		{Direction: audit.Egress, Verdict: audit.Denied, Reason: audit.ReasonPorts}: 34, {Direction: audit.Egress, Verdict: audit.WouldDeny, Reason: audit.ReasonAddress}: 35,
		{Direction: audit.Ingress, Verdict: audit.Denied, Reason: audit.ReasonIsolated}:                    66,
		{Direction: audit.Egress, Verdict: audit.WouldAllow, Reason: audit.ReasonRule, Tier: policy.Admin}: 60,
	}
	for i, of := range f.Denied.Flows {
		f.Denied.Flows[i].Count = counts[of]
	}
	want, err := os.ReadFile("testdata/exposition.golden")
	fatal.If(t, err)
	diff.Error(t, string(want), exposition(t, f, nil))
}

// proxyTypes are the types of questions that the proxy counts, without any.
func proxyTypes(t *testing.T) (types typeVerdicts) {
	t.Helper()
	c, err := corefile.Parse("Corefile", ". {\n forward . 198.51.100.53\n}")
	fatal.If(t, err)
	s, err := proxy.New(proxy.Options{Config: c, Granter: &granttest.Granter{}})
	fatal.If(t, err)
	return s.Stats().Types
}

type typeVerdicts = [len(counters.Stats{}.Types)]counters.TypeVerdicts

// quietFacts are an agent's at its start; busyFacts have every value set.
func quietFacts(t *testing.T) Facts {
	f := Facts{Version: "dev", Dataplane: stats.Dataplane{Name: "iptables", Variant: "nft"}, APIServerAway: ptr(true), BrokenFiles: ptr(0), Relay: servername.New(servername.Options{}).Stats(), Denied: Denied{Packets: ptr(uint64(0)), Flows: denial.New(denial.Options{}).Totals()}, Audit: &Audit{}, Upstreams: []upstream.Status{{Zone: "."}}}
	f.Proxy.Types = proxyTypes(t)
	return f
}

func busyFacts(t *testing.T) Facts {
	f := Facts{Version: "dev", Dataplane: stats.Dataplane{Name: "iptables", Variant: "nft"}, Ready: true, InSync: true, APIServerAway: ptr(false), Snapshot: 1, BrokenFiles: ptr(1), Denied: Denied{Over: 1, Lost: 1, Packets: ptr(uint64(1))},
		Upstreams: []upstream.Status{{Zone: ".", Up: 1, Down: 1}}, Audit: &Audit{1, 1, 1}}
	for _, reason := range append(problemReasons[:], "Strange") {
		f.Problems = append(f.Problems, policy.Problem{Reason: reason})
	}
	for _, reason := range findingReasons {
		f.Findings = append(f.Findings, findings(reason, 1)...)
	}
	f.Denied.Flows = denial.New(denial.Options{}).Totals()
	for i := range f.Denied.Flows {
		f.Denied.Flows[i].Count = 1
	}
	f.EnforceNetworkPolicies, f.NetworkPolicies, f.RemotePods = true, 1, 1
	raise(reflect.ValueOf(&f.Enforcer).Elem())
	f.Enforcer.Deviations = []stats.Deviation{{Object: "heartbeat"}}
	f.Enforcer.AtBound = []string{"shop/a"}
	raise(reflect.ValueOf(&f.Proxy).Elem())
	for i, of := range proxyTypes(t) {
		f.Proxy.Types[i].Type = of.Type
	}
	f.Relay = servername.New(servername.Options{}).Stats()
	raise(reflect.ValueOf(&f.Relay).Elem())
	for reason := range f.Relay.Denied {
		f.Relay.Denied[reason] = 1
	}
	f.Proxy.Queries = 2 // more than over TCP
	return f
}

// findings are n findings of a reason, each of a pod of its own.
func findings(reason string, n int) (out []status.Finding) {
	for i := range n {
		out = append(out, status.Finding{Policy: "shop/a", Pod: policy.PodRef{Namespace: "shop", Name: fmt.Sprint("web-", i)}, Reason: reason})
	}
	return out
}

// raise sets every number to 1 and every flag.
func raise(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			raise(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			raise(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else if v.CanUint() {
			v.SetUint(1)
		}
	}
}

// TestNoMetricIsConstant: whatever happens, the metric of it moves, and none is left
// out where nothing has happened yet.
func TestNoMetricIsConstant(t *testing.T) {
	quiet, timed := scraped(t, quietFacts(t), nil), NewTiming(time.Now)
	timed.Compile(func() {})
	_ = timed.Apply(func() error { return context.Canceled })
	busy := scraped(t, busyFacts(t), timed)
	for sample, value := range busy {
		was, there := quiet[sample]
		if !there {
			t.Errorf("%s is not told while nothing has happened", sample)
		}
		if was == value && !strings.HasPrefix(sample, "namegate_build_info") && !strings.HasPrefix(sample, "namegate_dataplane_info") {
			t.Errorf("%s is %s whatever happens", sample, value)
		}
	}
	if len(busy) != len(quiet) || len(busy) < 100 {
		t.Errorf("%d samples, %d while nothing has happened", len(busy), len(quiet))
	}
}

// TestMetricsAreWellFormed by the rules of Prometheus: units, suffixes, helps.
func TestMetricsAreWellFormed(t *testing.T) {
	problems, err := testutil.GatherAndLint(registryOf(t, busyFacts(t), nil))
	fatal.If(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestAbsentMetrics: what has no meaning for an agent is not told as zero.
func TestAbsentMetrics(t *testing.T) {
	f := quietFacts(t)
	all := scraped(t, f, nil)
	f.APIServerAway, f.BrokenFiles, f.Denied.Packets, f.Audit = nil, nil, nil, nil
	without := scraped(t, f, nil)
	for _, sample := range []string{"namegate_api_server_connected", "namegate_broken_files", "namegate_denied_packets_total",
		"namegate_audit_written_lines_total", "namegate_audit_filtered_lines_total", "namegate_audit_dropped_lines_total"} {
		_, was := all[sample]
		if _, is := without[sample]; !was || is {
			t.Errorf("%s: told %v with it, %v without", sample, was, is)
		}
	}
}

// TestHistogramsAreCumulative, as Prometheus wants them.
func TestHistogramsAreCumulative(t *testing.T) {
	f := quietFacts(t)
	h := &f.Proxy.Latency.Grant
	h.Counts[0], h.Counts[2], h.Counts[len(h.Counts)-1], h.Sum = 3, 4, 5, 41*time.Second
	got := scraped(t, f, nil)
	for le, want := range map[string]string{"5e-05": "3", "0.0001": "3", "0.00025": "7", "5": "7", "+Inf": "12"} {
		diff.Equal(t, want, got[`namegate_dns_latency_seconds_bucket{stage="grant",le="`+le+`"}`], "up to", le)
	}
	if n, sum := got[`namegate_dns_latency_seconds_count{stage="grant"}`], got[`namegate_dns_latency_seconds_sum{stage="grant"}`]; n != "12" || sum != "41" {
		t.Errorf("%s in %s s", n, sum)
	}
}

// TestPodsAreCountedOnce: two policies that select a pod make one pod.
func TestPodsAreCountedOnce(t *testing.T) {
	web, cart := policy.PodRef{Namespace: "shop", Name: "web"}, policy.PodRef{Namespace: "shop", Name: "cart"}
	got := podsByReason([]status.Finding{
		{Policy: "shop/a", Pod: web, Reason: status.NotSeen}, {Policy: "shop/b", Pod: web, Reason: status.NotSeen},
		{Policy: "shop/a", Pod: cart, Reason: status.NotSeen}, {Policy: "shop/a", Pod: web, Reason: status.Homeless},
	})
	diff.Error(t, map[string]int{status.NotSeen: 2, status.Homeless: 1}, got)
}

// TestMetricsPortIsTaken: the agent continues, and reports why there are no metrics.
func TestMetricsPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer taken.Close()
	log := &lines{said: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { Serve(ctx, taken.Addr().String(), nil, slog.New(slog.NewTextHandler(log, nil))); close(ended) }()
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
