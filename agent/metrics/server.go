package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// retryAfter is how long a server that failed waits for its next try.
	retryAfter = 30 * time.Second
	// maxScrapes bounds the scrapes at one time: a write to the kernel may hold each up.
	maxScrapes = 4
	// maxScrapers bounds the connections: every client that reaches the node may connect,
	// and the agent's memory is for the pods' answers.
	maxScrapers = 64
	// scrapeTime bounds one answer, so that a client that reads none of it delays no other.
	scrapeTime = 30 * time.Second
)

// Options are the sources of a Handler's metrics. All fields but Profiles are required.
type Options struct {
	// Facts returns the agent's numbers at the time of a scrape.
	Facts  func() Facts
	Timing *Timing
	// Live and Ready answer the probes.
	Live, Ready http.Handler
	// Profiles serves the Go profiles too.
	Profiles bool
}

// Serve answers on addr with h until ctx ends, and tries again after a failure: a port
// that another program has is no reason to leave pods without DNS.
func Serve(ctx context.Context, addr string, h http.Handler, log *slog.Logger) {
	for {
		err := serve(ctx, addr, h)
		if ctx.Err() != nil {
			return
		}
		log.Error("cannot serve metrics; trying again", "after", retryAfter, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
}

// Handler answers scrapes at /metrics, probes at /healthz and /readyz, and requests for
// profiles at /debug/pprof/.
func Handler(o Options) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{o.Facts, o.Timing})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", timed(promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})))
	mux.Handle("GET /healthz", timed(o.Live))
	mux.Handle("GET /readyz", timed(o.Ready))
	if o.Profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// timed bounds the time of an answer and of reading a request's body. Profiles take
// longer.
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

// serve answers on addr until ctx ends.
func serve(ctx context.Context, addr string, handler http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; give another --metrics-addr", err)
	}
	return serveAt(ctx, l, handler)
}

// serveAt is serve with the listener.
func serveAt(ctx context.Context, l net.Listener, handler http.Handler) error {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(netutil.LimitListener(l, maxScrapers)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
