package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/access"
	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// agent runs an agent's listener on a free port until the test ends, and returns its server, the key that it published
// and where it listens.
func agent(t *testing.T, api *accesstest.API, answer func(*access.Server) http.Handler) (pin entry.Pin, at netip.AddrPort, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	run := func() {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
		fatal.If(t, err)
		at = netip.MustParseAddrPort(l.Addr().String())
		l.Close()
		s, err := access.New(access.Options{Client: api, Namespace: accesstest.Namespace, DaemonSet: "namegate", Node: "n1", Log: slog.New(slog.DiscardHandler), Addresses: []netip.AddrPort{at}})
		fatal.If(t, err)
		go func() { done <- s.Run(ctx, answer(s)) }()
	}
	run()
	fatal.Await(t, "the agent has published", func() bool {
		select {
		case err := <-done:
			if !errors.Is(err, syscall.EADDRINUSE) { // another program has the port by now
				t.Fatal(err)
			}
			run()
		default:
		}
		l, err := api.CoordinationV1().Leases(accesstest.Namespace).Get(t.Context(), entry.LeaseOf("n1"), metav1.GetOptions{})
		if err != nil {
			return false
		}
		e, err := entry.Decode("n1", l.Annotations["n1"+entry.Suffix])
		pin = e.Pin
		return err == nil
	})
	accesstest.PublishAt(t, api, "n1", pin, at)
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	return pin, at, stop
}

// cluster is one in which an agent is published at an address, for a caller with a token.
func cluster(api *accesstest.API, token string) *Cluster {
	return &Cluster{client: api, login: Login{Agents: accesstest.Namespace}, namespace: "shop", transport: &transport.Config{BearerToken: token}}
}

// statusOf returns the status of a refusal, 0 if the error is none.
func statusOf(err error) int {
	var r *console.Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}

// told answers with the rows of the requested namespace that the caller may see.
func told(s *access.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Viewer(r)
		var yes bool
		if err == nil {
			yes, err = v.May(r.Context(), serve.RowsOf(r.URL.Query().Get("namespace")))
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
			io.WriteString(w, "rows for "+v.Name()+" of "+r.URL.Path)
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
	api := accesstest.NewAPI(accesstest.Node("n1"), accesstest.Pod("shop", "cart", "n1"))
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = []string{"shop"}
	agent(t, api, told)
	for _, c := range []struct {
		token, namespace, want string
		status                 int
	}{
		{"alice's", "shop", "rows for alice of /v1/pods", 0},
		{"alice's", "bank", "not yours", 403},
		{"alice's", "", "not yours", 403},
		{"guess", "shop", "log in again", 401},
		{"", "shop", "no request without credentials", 401},
	} {
		a, err := cluster(api, c.token).OfPod(t.Context(), "shop", "cart")
		fatal.If(t, err)
		diff.Equal(t, "n1", a.Node(), "the agent's node")
		resp, err := a.Ask(t.Context(), "/v1/pods", url.Values{"namespace": {c.namespace}})
		if c.status == 0 {
			diff.Equal(t, c.want, body(t, resp, err), c)
		} else if statusOf(err) != c.status || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %d %v", c, statusOf(err), err)
		}
	}
}

// TestCertificateCaller: a user of client certificates is known by one, over the wire.
func TestCertificateCaller(t *testing.T) {
	ours, theirs := accesstest.NewCA(t), accesstest.NewCA(t)
	api := accesstest.NewAPI(accesstest.Node("n1"), accesstest.ClientCA(ours.PEM()))
	api.Rights["carol"] = []string{"shop"}
	agent(t, api, told)
	for by, status := range map[*accesstest.CA]int{ours: 0, theirs: http.StatusUnauthorized} {
		c := cluster(api, "")
		c.transport.TLS.CertData, c.transport.TLS.KeyData = by.Issue(t, nil)
		c.transport.TLS.CAData, c.transport.TLS.ServerName = []byte(theirs.PEM()), "kubernetes.test" // the API server's
		a, err := c.OfNode(t.Context(), "n1")
		fatal.If(t, err)
		var resp *http.Response
		fatal.Await(t, "the authority is known", func() bool {
			resp, err = a.Ask(t.Context(), "/v1/grants", url.Values{"namespace": {"shop"}})
			return statusOf(err) != http.StatusServiceUnavailable
		})
		if status != 0 {
			diff.Equal(t, status, statusOf(err), "a stranger's certificate", err)
			continue
		}
		diff.Equal(t, "rows for carol of /v1/grants", body(t, resp, err))
	}
}

// impostor is a server with a key of its own, which calls asked with each question.
func impostor(t *testing.T, config *tls.Config, asked func(*http.Request)) (netip.AddrPort, entry.Pin) {
	t.Helper()
	cert, key := accesstest.NewCA(t).Issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	pair, err := tls.X509KeyPair(cert, key)
	fatal.If(t, err)
	config.Certificates = []tls.Certificate{pair}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	fatal.If(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked(r) }), ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return netip.MustParseAddrPort(l.Addr().String()), entry.PinOf(accesstest.Parsed(t, cert))
}

// TestWrongKey: a server with another key than the published one gets neither token nor
// certificate, and the caller gets the reason.
func TestWrongKey(t *testing.T) {
	api := accesstest.NewAPI(accesstest.Node("n1"))
	var asked, showed atomic.Int32
	at, _ := impostor(t, &tls.Config{
		ClientAuth:       tls.RequestClientCert,
		VerifyConnection: func(s tls.ConnectionState) error { showed.Add(int32(len(s.PeerCertificates))); return nil },
	}, func(*http.Request) { asked.Add(1) })
	accesstest.PublishAt(t, api, "n1", entry.Pin{1}, at)
	c := cluster(api, "secret")
	c.transport.TLS.CertData, c.transport.TLS.KeyData = accesstest.NewCA(t).Issue(t, nil)
	a, err := c.OfNode(t.Context(), "n1")
	fatal.If(t, err)
	_, err = a.Ask(t.Context(), "/v1/status", nil)
	var away *console.Unreachable
	if !errors.As(err, &away) || !errors.Is(err, entry.ErrWrongKey) || !strings.Contains(err.Error(), "sent nothing") {
		t.Errorf("got %v", err)
	}
	if asked.Load() != 0 || showed.Load() != 0 {
		t.Errorf("the other server got %d questions and %d certificates", asked.Load(), showed.Load())
	}
	diff.Equal(t, console.ExitUnreachable, console.ExitCode(err), "exit code")
}

// TestHandOver: an agent that has just been replaced is found where the next one
// published.
func TestHandOver(t *testing.T) {
	api := accesstest.NewAPI(accesstest.Node("n1"))
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = []string{""}
	pin, at, _ := agent(t, api, told)
	for name, before := range map[string]entry.Entry{
		"another key":  {Node: "n1", Addresses: []netip.AddrPort{at}, Pin: entry.Pin{9}},
		"another port": {Node: "n1", Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, Pin: pin},
	} {
		a := &remote{cluster(api, "alice's"), before}
		resp, err := a.Ask(t.Context(), "/v1/status", nil)
		diff.Equal(t, "rows for alice of /v1/status", body(t, resp, err), name)
	}
}

// TestNoRedirect: an agent cannot send the caller's token to somebody else.
func TestNoRedirect(t *testing.T) {
	api := accesstest.NewAPI(accesstest.Node("n1"))
	var leaked atomic.Bool
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	thief := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) })}
	go thief.Serve(l)
	defer thief.Close()
	agent(t, api, func(*access.Server) http.Handler {
		return http.RedirectHandler("http://"+l.Addr().String()+"/", http.StatusTemporaryRedirect)
	})
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
	api := accesstest.NewAPI(accesstest.Node("n1"))
	next := make(chan string)
	_, _, stop := agent(t, api, func(*access.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for {
				select {
				case <-r.Context().Done():
					return
				case line := <-next:
					io.WriteString(w, line+"\n")
					w.(http.Flusher).Flush()
				}
			}
		})
	})
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

// TestOldTLS: a caller speaks nothing older than agents do, so that no certificate of
// its own is seen on the way.
func TestOldTLS(t *testing.T) {
	at, pin := impostor(t, &tls.Config{MaxVersion: tls.VersionTLS12}, func(*http.Request) { t.Error("it was asked") })
	api := accesstest.NewAPI()
	accesstest.PublishAt(t, api, "n1", pin, at)
	a, err := cluster(api, "alice's").OfNode(t.Context(), "n1")
	fatal.If(t, err)
	if _, err := a.Ask(t.Context(), "/v1/status", nil); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("got %v", err)
	}
}

// TestProxyOfTLS: a proxy that is spoken to by TLS has not the agent's key, and hears
// neither of the agent nor of the caller.
func TestProxyOfTLS(t *testing.T) {
	at, _ := impostor(t, &tls.Config{ClientAuth: tls.RequestClientCert}, func(r *http.Request) { t.Error("the proxy was told", r.Method, r.Host, r.Header) })
	api := accesstest.NewAPI()
	accesstest.PublishAt(t, api, "n1", entry.Pin{1}, netip.MustParseAddrPort("192.0.2.1:9954"))
	c := cluster(api, "alice's")
	c.transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("https://" + at.String()) }
	a, err := c.OfNode(t.Context(), "n1")
	fatal.If(t, err)
	if _, err := a.Ask(t.Context(), "/v1/status", nil); !errors.Is(err, entry.ErrWrongKey) {
		t.Errorf("got %v", err)
	}
}
