package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/share"
)

// The bounds of one connection's cost.
const (
	headerTime  = 5 * time.Second  // the handshake, and again a question's header
	idleTime    = 30 * time.Second // between two questions
	writeTime   = 30 * time.Second // until a piece of an answer is taken
	headerBytes = 64 << 10         // tokens of some providers have 20 KiB
)

// Options are the parameters of a Server; all are required but DaemonSet, Leaving and
// Now.
type Options struct {
	// Client asks the API server. It should be the server's own, so that callers cannot
	// use up the rate of the agent's other parts.
	Client kubernetes.Interface
	// Namespace is the release's namespace, DaemonSet the agents': published entries are
	// deleted with it.
	Namespace, DaemonSet string
	// Node is the node's name.
	Node string
	// Addresses are where to listen. Those of loopback are not published; for one of
	// all addresses the Node's internal ones are.
	Addresses []netip.AddrPort
	// Leaving tells, when Run ends, whether no other agent will follow on this node: then
	// the published entry is removed. nil is never.
	Leaving func() bool
	Log     *slog.Logger
	Now     func() time.Time // default time.Now
}

// Server is an agent's listener for people.
type Server struct {
	o           Options
	certificate tls.Certificate
	pin         entry.Pin
	callers     *callers
	sees        *cache.LRUExpireCache // whether a right is there, by asked
}

// New makes a server with a key of its own, which is in memory alone.
func New(o Options) (*Server, error) {
	if o.Client == nil || o.Namespace == "" || o.Node == "" || len(o.Addresses) == 0 || o.Log == nil {
		return nil, errors.New("a console needs a client, a log, an address, and the names of node and namespace")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	certificate, pin, err := newCertificate(o.Now())
	if err != nil {
		return nil, err
	}
	turns, err := lru.New[string, *semaphore.Weighted](maxCached)
	if err != nil {
		return nil, fmt.Errorf("make a console: %w", err) // of a size below one
	}
	c := &callers{
		client: o.Client, log: o.Log, now: o.Now, authority: &authority{client: o.Client, log: o.Log},
		known: cache.NewLRUExpireCacheWithClock(maxCached, clock(o.Now)), throttle: newThrottle(o.Now, reviewRate, allReviewRate), turns: turns,
	}
	return &Server{o: o, certificate: certificate, pin: pin, callers: c, sees: cache.NewLRUExpireCacheWithClock(maxCached, clock(o.Now))}, nil
}

// Viewer returns the caller. The error is a *console.Refusal: 401 for a caller that the
// API server does not know, 429 for too many unknown callers, 503 while the API server is
// unavailable.
func (s *Server) Viewer(r *http.Request) (serve.Viewer, error) {
	u, err := s.callers.who(r)
	if err != nil {
		return nil, err
	}
	return &Viewer{callers: s.callers, sees: s.sees, request: r, user: u}, nil
}

// Run listens, publishes where and with which key, and lets handler answer, until
// ctx ends. It fails at once where an address is taken.
func (s *Server) Run(ctx context.Context, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	server := s.bounded(ctx, handler)
	wg.Go(func() { s.callers.authority.keep(ctx) })
	wg.Go(func() { s.publisher(listeners).keep(ctx) })
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() { failed <- server.Serve(l) })
	}
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
		err = fmt.Errorf("serve the console: %w", err)
	}
	server.Close()
	return err
}

// bounded returns a server that gives no caller more than its bounds; questions end
// with ctx.
func (s *Server) bounded(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: patient(handler), ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// listen opens all addresses, or none.
func (s *Server) listen(ctx context.Context) (out []net.Listener, err error) {
	config := &tls.Config{
		Certificates: []tls.Certificate{s.certificate},
		MinVersion:   tls.VersionTLS13,
		// Asked for, and judged with the question: a client without one has a token.
		ClientAuth: tls.RequestClientCert,
		// One question at a time and connection, so that the bound of connections bounds questions.
		NextProtos: []string{"http/1.1"},
	}
	slots, often := &share.Slots[netip.Addr]{}, newThrottle(s.o.Now, connectionRate, allConnectionRate)
	for _, a := range s.o.Addresses {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", a.String())
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, fmt.Errorf("listen for people: %w", err)
		}
		out = append(out, tls.NewListener(boundedListener{l, slots, often}, config))
	}
	return out, nil
}

// patient sets a deadline for every piece of an answer: an answer may follow the log for
// hours, but a caller that reads nothing must not keep a connection. Neither must a
// caller that announces a body, which no request has: the server would wait for it.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patientWriter{w, http.NewResponseController(w)}
		if r.ContentLength == 0 {
			h.ServeHTTP(p, r)
			return
		}
		_ = p.control.SetReadDeadline(time.Now().Add(headerTime))
		w.Header().Set("Connection", "close")
		console.Refuse(http.StatusBadRequest, "a question has no body").Answer(p)
	})
}

type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write sends a piece of the answer.
func (w *patientWriter) Write(p []byte) (int, error) {
	// A connection without deadlines, as of a test, is as good.
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime))
	return w.ResponseWriter.Write(p)
}

// Flush sends the written data.
func (w *patientWriter) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime))
	_ = w.control.Flush()
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
