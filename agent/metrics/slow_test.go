package metrics

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// oneCall is a listener with one connection.
type oneCall struct {
	net.Listener
	calls chan net.Conn
}

func (l oneCall) Accept() (net.Conn, error) {
	if c, ok := <-l.calls; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (oneCall) Close() error   { return nil }
func (oneCall) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestScraperThatReadsNothing: a scraper that reads nothing is disconnected, and so is
// one that announces a body and sends none.
func TestScraperThatReadsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		said  string
		reads bool
	}{
		"takes nothing":       {"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"announces a body":    {"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n", true},
		"announces no length": {"GET /readyz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan time.Duration, 1)
				begin := time.Now()
				server := http.Server{Handler: handler(false), ConnState: func(_ net.Conn, s http.ConnState) {
					if s == http.StateClosed {
						ended <- time.Since(begin)
					}
				}}
				here, there := net.Pipe()
				defer here.Close()
				l := oneCall{calls: make(chan net.Conn, 1)}
				l.calls <- there
				done := make(chan struct{})
				go func() { defer close(done); _ = server.Serve(l) }()
				if _, err := io.WriteString(here, c.said); err != nil {
					t.Fatal(err)
				}
				if c.reads {
					go func() { _, _ = io.Copy(io.Discard, here) }()
				}
				select {
				case took := <-ended:
					if took > scrapeTime+time.Second {
						t.Errorf("ended after %v", took)
					}
				case <-time.After(time.Hour):
					t.Error("it is held for ever")
				}
				close(l.calls)
				here.Close()
				server.Close()
				<-done
				time.Sleep(time.Second) // the time that a refused connection stays
			})
		})
	}
}

// TestScrapersAreBounded: a limited number of connections is served at a time, the next
// when one ends.
func TestScrapersAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serveAt(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	}()
	defer func() { stop(); <-done }()
	ask := func(c net.Conn, within time.Duration) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		fatal.If(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	held := make([]net.Conn, maxScrapers)
	for i := range held {
		held[i] = dial()
		fatal.If(t, ask(held[i], time.Minute), "scraper", i)
	}
	next := dial()
	if err := ask(next, 200*time.Millisecond); err == nil {
		t.Error("one more than the bound is served")
	}
	held[0].Close()
	_ = next.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := http.ReadResponse(bufio.NewReader(next), nil); err != nil {
		t.Errorf("the next is not served when one is gone: %v", err)
	}
}

// handler answers for an agent that is well.
func handler(profiles bool) http.Handler {
	well := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	return Handler(Options{Facts: func() Facts { return Facts{} }, Timing: NewTiming(time.Now), Live: well, Ready: well, Profiles: profiles})
}

// TestProfilesAreOff unless they are asked for.
func TestProfilesAreOff(t *testing.T) {
	for _, on := range []bool{false, true} {
		h := handler(on)
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			r := httptest.NewRecorder()
			h.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			diff.Equal(t, map[bool]int{false: 404, true: 200}[on], r.Code, "with --pprof=", on, path)
		}
	}
}

// TestTiming: each duration is in its own histogram, failures too.
func TestTiming(t *testing.T) {
	now := time.Unix(1000, 0)
	timed := NewTiming(func() time.Time { return now })
	timed.Compile(func() { now = now.Add(2 * time.Millisecond) })
	refused := errors.New("refused")
	for _, err := range []error{nil, refused, nil} {
		diff.Is(t, err, timed.Apply(func() error { now = now.Add(300 * time.Millisecond); return err }))
	}
	got := scraped(t, quietFacts(t), timed)
	for sample, want := range map[string]string{
		"namegate_compile_seconds_count": "1", "namegate_compile_seconds_sum": "0.002", `namegate_compile_seconds_bucket{le="0.001"}`: "0",
		`namegate_compile_seconds_bucket{le="0.0025"}`: "1", "namegate_apply_seconds_count": "3", `namegate_apply_seconds_bucket{le="0.25"}`: "0",
		`namegate_apply_seconds_bucket{le="0.5"}`: "3", `namegate_apply_seconds_bucket{le="30"}`: "3", "namegate_apply_failures_total": "1",
	} {
		diff.Equal(t, want, got[sample], sample)
	}
}
