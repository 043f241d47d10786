package access

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/fatal"
)

// start runs a server on a free port until stop is called, and returns where it
// listens once it has published itself, for port-forwards alone.
func start(t *testing.T, s *Server, h http.Handler) (at netip.AddrPort, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	run := func() {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
		fatal.If(t, err)
		at = netip.MustParseAddrPort(l.Addr().String())
		l.Close()
		s.o.Addresses = []netip.AddrPort{at}
		go func() { done <- s.Run(ctx, h) }()
	}
	run()
	fatal.Await(t, "the server has published", func() bool {
		select {
		case err := <-done:
			if !errors.Is(err, syscall.EADDRINUSE) { // another program has the port by now
				t.Fatal(err)
			}
			run()
		default:
		}
		l, err := s.o.Client.CoordinationV1().Leases(DefaultNamespace).Get(t.Context(), leaseOf(s.o.Node), metav1.GetOptions{})
		return err == nil && strings.Contains(l.Annotations[s.o.Node+entryKey], s.pin.String())
	})
	return at, func() error { cancel(); return <-done }
}

// serve runs a server until the test ends.
func serve(t *testing.T, s *Server, h http.Handler) netip.AddrPort {
	t.Helper()
	at, stop := start(t, s, h)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return at
}

// cluster is one in which an agent is published at an address, for a caller with a token.
func cluster(api *apiServer, token string) *Cluster {
	return &Cluster{client: api, login: Login{Agents: DefaultNamespace}, namespace: "shop", transport: &transport.Config{BearerToken: token}}
}

// publishAt writes the annotation of a node.
func publishAt(t *testing.T, api *apiServer, node string, pin Pin, at ...netip.AddrPort) {
	t.Helper()
	p := newPublisher(api)
	p.node, p.pin, p.listen = node, pin, nil
	text, err := entry{node, at, pin}.encode()
	fatal.If(t, err)
	leases := api.CoordinationV1().Leases(DefaultNamespace)
	l, err := leases.Get(t.Context(), leaseOf(node), metav1.GetOptions{})
	if err != nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: leaseOf(node)}}
		_, err = leases.Create(t.Context(), l, metav1.CreateOptions{})
		fatal.If(t, err)
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, node+entryKey, text)
	_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
	fatal.If(t, err)
}

// told answers with the rows of the requested namespace that the caller may see.
func told(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Viewer(r)
		var yes bool
		if err == nil {
			yes, err = v.Sees(r.Context(), r.URL.Query().Get("namespace"))
		}
		var refusal *console.Refusal
		switch {
		case errors.As(err, &refusal):
			w.WriteHeader(refusal.Status)
			_ = json.NewEncoder(w).Encode(refusal)
		case !yes:
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"error":"not yours"}`)
		default:
			io.WriteString(w, "rows for "+v.(*Viewer).Name()+" of "+r.URL.Path)
		}
	})
}

func body(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	fatal.If(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fatal.If(t, err)
	return string(text)
}

// TestAsk: a caller finds the agent of a pod, and gets the rows that it may see.
func TestAsk(t *testing.T) {
	api := newAPIServer(node("n1"), pod("shop", "cart", "n1"))
	api.tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.rights["alice"] = []string{"shop"}
	s := newServer(t, api, nil)
	at := serve(t, s, told(s))
	publishAt(t, api, "n1", s.pin, at)
	for _, c := range []struct {
		token, namespace, want string
		status                 int
	}{
		{"alice's", "shop", "rows for alice of /v1/pods", 0},
		{"alice's", "bank", "not yours", 403},
		{"alice's", "", "not yours", 403},
		{"guess", "shop", "log in again", 401},
		{"", "shop", "nobody without credentials", 401},
	} {
		a, err := cluster(api, c.token).OfPod(t.Context(), "shop", "cart")
		fatal.If(t, err)
		if a.Node() != "n1" {
			t.Errorf("the agent of %s", a.Node())
		}
		resp, err := a.Ask(t.Context(), "/v1/pods", url.Values{"namespace": {c.namespace}})
		if c.status == 0 {
			if got := body(t, resp, err); got != c.want {
				t.Errorf("%+v: %s", c, got)
			}
		} else if statusOf(err) != c.status || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %d %v", c, statusOf(err), err)
		}
	}
}

// TestCertificateCaller: a user of client certificates is known by one, over the wire.
func TestCertificateCaller(t *testing.T) {
	ours, theirs := newCA(t), newCA(t)
	api := newAPIServer(node("n1"), clientCA(ours.pem()))
	api.rights["carol"] = []string{"shop"}
	s := newServer(t, api, nil)
	at := serve(t, s, told(s))
	fatal.Await(t, "the authority is known", func() bool { return s.callers.authority.pool.Load() != nil })
	publishAt(t, api, "n1", s.pin, at)
	for by, status := range map[*ca]int{ours: 0, theirs: http.StatusUnauthorized} {
		c := cluster(api, "")
		c.transport.TLS.CertData, c.transport.TLS.KeyData = by.issue(t, nil)
		c.transport.TLS.CAData, c.transport.TLS.ServerName = []byte(theirs.pem()), "kubernetes.test" // the API server's
		a, err := c.OfNode(t.Context(), "n1")
		fatal.If(t, err)
		resp, err := a.Ask(t.Context(), "/v1/grants", url.Values{"namespace": {"shop"}})
		if status != 0 {
			if statusOf(err) != status {
				t.Errorf("a stranger's certificate: %v", err)
			}
			continue
		}
		if got := body(t, resp, err); got != "rows for carol of /v1/grants" {
			t.Errorf("got %s", got)
		}
	}
}

// TestWrongKey: a server with another key than the published one gets neither token nor
// certificate, and the caller gets the reason.
func TestWrongKey(t *testing.T) {
	api := newAPIServer(node("n1"))
	var asked, showed atomic.Int32
	certificate, _, err := newCertificate(time.Now())
	fatal.If(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
		VerifyConnection: func(s tls.ConnectionState) error { showed.Add(int32(len(s.PeerCertificates))); return nil },
	})
	fatal.If(t, err)
	impostor := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }), ErrorLog: quiet()}
	go impostor.Serve(l)
	defer impostor.Close()
	s := newServer(t, api, nil)
	publishAt(t, api, "n1", s.pin, netip.MustParseAddrPort(l.Addr().String()))
	c := cluster(api, "secret")
	c.transport.TLS.CertData, c.transport.TLS.KeyData = newCA(t).issue(t, nil)
	a, err := c.OfNode(t.Context(), "n1")
	fatal.If(t, err)
	_, err = a.Ask(t.Context(), "/v1/status", nil)
	var away *console.Unreachable
	if !errors.As(err, &away) || !errors.Is(err, errWrongKey) || !strings.Contains(err.Error(), "told nothing") {
		t.Errorf("got %v", err)
	}
	if asked.Load() != 0 || showed.Load() != 0 {
		t.Errorf("the other server got %d questions and %d certificates", asked.Load(), showed.Load())
	}
	if console.ExitCode(err) != console.ExitUnreachable {
		t.Errorf("exit code %d", console.ExitCode(err))
	}
}

// TestHandOver: an agent that has just been replaced is found where the next one
// published.
func TestHandOver(t *testing.T) {
	api := newAPIServer(node("n1"))
	api.tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.rights["alice"] = []string{""}
	s := newServer(t, api, nil)
	at := serve(t, s, told(s))
	for name, before := range map[string]entry{
		"another key":  {"n1", []netip.AddrPort{at}, Pin{9}},
		"another port": {"n1", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, s.pin},
	} {
		a := &remote{cluster(api, "alice's"), before}
		publishAt(t, api, "n1", s.pin, at)
		resp, err := a.Ask(t.Context(), "/v1/status", nil)
		if got := body(t, resp, err); got != "rows for alice of /v1/status" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestNoRedirect: an agent cannot send the caller's token to somebody else.
func TestNoRedirect(t *testing.T) {
	api := newAPIServer(node("n1"))
	var leaked atomic.Bool
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	thief := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) })}
	go thief.Serve(l)
	defer thief.Close()
	s := newServer(t, api, nil)
	at := serve(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+l.Addr().String()+"/", http.StatusTemporaryRedirect)
	}))
	publishAt(t, api, "n1", s.pin, at)
	a, err := cluster(api, "secret").OfNode(t.Context(), "n1")
	fatal.If(t, err)
	if _, err := a.Ask(t.Context(), "/v1/status", nil); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v", err)
	}
	if leaked.Load() {
		t.Error("the token went to another server")
	}
}

// TestFollow: a flushed line arrives immediately, and the end of the agent ends the
// answer.
func TestFollow(t *testing.T) {
	api := newAPIServer(node("n1"))
	s := newServer(t, api, nil)
	next := make(chan string)
	at, stop := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-r.Context().Done():
				return
			case line := <-next:
				io.WriteString(w, line+"\n")
				w.(http.Flusher).Flush()
			}
		}
	}))
	publishAt(t, api, "n1", s.pin, at)
	c := cluster(api, "alice's")
	a, err := c.OfNode(t.Context(), "n1")
	fatal.If(t, err)
	go func() { next <- "first" }()
	resp, err := a.Ask(t.Context(), "/v1/audit", url.Values{"follow": {"1"}})
	fatal.If(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "first" {
		t.Fatalf("got %q %v", lines.Text(), lines.Err())
	}
	next <- "second"
	if !lines.Scan() || lines.Text() != "second" {
		t.Fatalf("got %q %v", lines.Text(), lines.Err())
	}
	fatal.If(t, stop())
	if lines.Scan() {
		t.Errorf("got %q after the end", lines.Text())
	}
}

// TestPortIsTaken: a port that somebody has is an error, and none of the other
// addresses stays open.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	free.Close()
	s := newServer(t, newAPIServer(), nil)
	s.o.Addresses = []netip.AddrPort{netip.MustParseAddrPort(free.Addr().String()), netip.MustParseAddrPort(taken.Addr().String())}
	if err := s.Run(t.Context(), told(s)); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
	fatal.Await(t, "an address stays open", func() bool { // another program may have its port for a moment
		again, err := net.Listen("tcp", free.Addr().String())
		if err == nil {
			again.Close()
		}
		return err == nil
	})
}

// TestSeats: one address holds so many connections and no more; a seat that is given
// back is somebody else's.
func TestSeats(t *testing.T) {
	s := newConnLimiter()
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range connectionsOfOne {
		if !s.acquire(one) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.acquire(one) || !s.acquire(other) {
		t.Error("the bound of one address is not that")
	}
	s.release(one)
	if !s.acquire(one) {
		t.Error("a seat is lost")
	}
	for i := s.all; i < maxConnections; i++ {
		if !s.acquire(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.acquire(netip.MustParseAddr("203.0.113.1")) {
		t.Error("more connections than the most")
	}
	if n := len(s.of); n != 2+maxConnections-connectionsOfOne-1 {
		t.Errorf("%d addresses are counted", n)
	}
}

// TestTooManyConnections: connections beyond the bound are closed, and closed ones make
// room.
func TestTooManyConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer l.Close()
	bounded := boundedListener{l, newConnLimiter(), newThrottle(time.Now, connectionRate, allConnectionRate)}
	accepted := make(chan net.Conn, 2*connectionsOfLocal)
	go func() {
		for {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		fatal.If(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	var held []net.Conn
	for range connectionsOfLocal {
		dial()
		held = append(held, <-accepted)
	}
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many is served")
	}
	held[0].Close()
	held[0].Close() // twice gives one seat
	dial()
	<-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many is served")
	}
}

func TestNewNeedsEverything(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made of nothing")
	}
}
