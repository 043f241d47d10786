package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

const (
	// metricsAgain is how long a metrics server that failed waits for its next try.
	metricsAgain = 30 * time.Second
	// scrapesMost bounds the scrapes at one time: each waits for what a write to the
	// kernel may hold up.
	scrapesMost = 4
	// scrapersMost bounds the connections: whoever reaches the node may connect, and the
	// agent's memory is the pods' answers.
	scrapersMost = 64
	// scrapeTime bounds one answer, so that whoever takes none does not keep others from theirs.
	scrapeTime = 30 * time.Second
)

// checkMetrics refuses flags that do not go together.
func (f *agentFlags) checkMetrics() error {
	if f.pprof && f.metricsAddr == "" {
		return errors.New("--pprof has no listener to serve on; give --metrics-addr too")
	}
	return nil
}

// keepMetrics serves them until ctx ends. A port that another program has is no
// reason to leave pods without DNS.
func (a *agent) keepMetrics(ctx context.Context, addr string, profiles bool) {
	for {
		err := serveMetrics(ctx, addr, a.metricsHandler(profiles))
		if ctx.Err() != nil {
			return
		}
		a.log.Error("no metrics; trying again", "after", metricsAgain, "error", err)
		if wait(ctx, metricsAgain) != nil {
			return
		}
	}
}

// metricsHandler answers Prometheus and probes, and with profiles whoever looks for
// where time and memory go.
func (a *agent) metricsHandler(profiles bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &figures{a})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", timed(promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMost})))
	mux.Handle("GET /healthz", timed(a.health.handler(a.health.live, outline)))
	mux.Handle("GET /readyz", timed(a.health.handler(a.health.ready, outline)))
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// timed gives an answer its time, and what is announced behind a question, too.
// Profiles take theirs.
func timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, until := http.NewResponseController(w), time.Now().Add(scrapeTime)
		// A connection without deadlines, as of a test, is as good.
		_ = control.SetWriteDeadline(until)
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(until)
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// serveMetrics answers on addr until ctx ends.
func serveMetrics(ctx context.Context, addr string, handler http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; give another --metrics-addr", err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(netutil.LimitListener(l, scrapersMost)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// figures are the agent's own numbers, read when they are asked for.
type figures struct{ agent *agent }

// Describe sends no description: what is collected says what there is.
func (f *figures) Describe(ch chan<- *prometheus.Desc) { ch <- descInfo }

// Collect sends the numbers of now.
func (f *figures) Collect(ch chan<- prometheus.Metric) {
	teller(ch).facts(f.agent.facts())
	f.agent.rollout.timing.collect(ch)
}
