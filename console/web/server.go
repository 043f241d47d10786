package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/console"
)

// server answers the page.
type server struct {
	o       *Options
	feed    *feed
	store   *store
	started time.Time
	streams atomic.Int32
}

// Serve serves the page on loopback at a port, 0 for any that is free, until ctx ends. ready is called
// with the page's address, whose token gives the caller's rights: it is for the caller alone. The
// token is in the fragment, which browsers do not send.
func Serve(ctx context.Context, o Options, port uint16, ready func(address string)) error {
	listeners, err := listen(port)
	if err != nil {
		return err
	}
	s := newServer(&o)
	token := rand.Text()
	port = listeners[0].Addr().(*net.TCPAddr).AddrPort().Port()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := &http.Server{
		Handler: guard(s.handler(), files(), port, token), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- h.Serve(l) }()
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.feed.run(ctx)
	}()
	ready(fmt.Sprintf("http://%s/#/?token=%s", netip.AddrPortFrom(loopback4, port), token))
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	stop()
	_ = h.Close()
	<-followed
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

func newServer(o *Options) *server {
	s := &server{o: o, store: newStore(o.Now), started: o.Now().UTC()}
	s.feed = newFeed(o, s.store)
	return s
}

// loopback4 and loopback6 are the addresses of the page.
var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// listen listens on loopback, of IPv6 too where the host has that and the port is free there.
func listen(port uint16) ([]net.Listener, error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(loopback4, port).String())
	if err != nil {
		return nil, fmt.Errorf("listen for the page: %w; --port names another port", err)
	}
	out := []net.Listener{l}
	if six, err := net.Listen("tcp", netip.AddrPortFrom(loopback6, l.Addr().(*net.TCPAddr).AddrPort().Port()).String()); err == nil {
		out = append(out, six)
	}
	return out, nil
}

// handler answers requests for /api/ that guard lets pass: their method is GET.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*http.Request) (any, error){
		"session": s.session, "lines": s.lines, "grants": s.grants, "status": s.status, "policies": s.policies, "explain": s.explain, "suggest": s.suggest,
	} {
		mux.HandleFunc("/api/"+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			if err != nil {
				refuse(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // a page that is gone reads no error
		})
	}
	mux.HandleFunc("/api/events", s.events)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, console.Refuse(http.StatusNotFound, "there is no %s; is the page of another version than the program?", r.URL.Path))
	})
	return mux
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	answer := console.Refuse(http.StatusBadGateway, "%s", console.OneLine(err.Error()))
	var refusal *console.Refusal
	var misused *console.Misused
	switch {
	case errors.As(err, &refusal) && refusal.Status >= http.StatusBadRequest:
		answer.Status = refusal.Status
	case errors.As(err, &misused):
		answer.Status = http.StatusBadRequest
	}
	answer.Answer(w)
}
