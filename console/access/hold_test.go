package access

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/share"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/testclock"
)

// TestBodyThatNeverArrives: a question that announces a body and does not send it holds
// its connection no longer than a header may.
func TestBodyThatNeverArrives(t *testing.T) {
	for _, said := range []string{"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 9\r\nExpect: 100-continue\r\n"} {
		t.Run(said, func(t *testing.T) {
			asked := false
			h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })
			inMemory(t, h, func(t *testing.T, p *pipes) {
				c := p.dial()
				defer c.Close()
				begin := time.Now()
				_, err := io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: a\r\n"+said+"\r\n")
				fatal.If(t, err)
				fatal.If(t, c.SetReadDeadline(begin.Add(time.Hour)))
				text, err := io.ReadAll(c)
				if took := time.Since(begin); took > headerTime+time.Second || err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("held for %v: %v", took, err)
				}
				if !strings.HasPrefix(string(text), "HTTP/1.1 400") || !strings.Contains(string(text), "no body") || asked {
					t.Errorf("asked: %v, answered %q", asked, text)
				}
			})
		})
	}
}

// TestInvalidNamespace: it needs no review, and is not cached.
func TestInvalidNamespace(t *testing.T) {
	api := accesstest.NewAPI()
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = append(api.Rights["alice"], strings.Repeat("x", 60<<10), "shop\x00", "../shop", "shop/x", "Shop", "-")
	s := newServer(t, api, nil)
	v, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	for _, namespace := range api.Rights["alice"] {
		if yes, err := v.May(t.Context(), serve.RowsOf(namespace)); yes || err != nil {
			t.Errorf("sees %.20q: %v, %v", namespace, yes, err)
		}
	}
	diff.Equal(t, 0, len(api.Asked), "questions to the API server")
}

// TestUnknownCertificatesAreLimited: each costs a search for its issuer, and is limited
// like a guess at a token; a known one is not checked again.
func TestUnknownCertificatesAreLimited(t *testing.T) {
	ours, c := accesstest.NewCA(t), testclock.New(time.Now())
	s := newServer(t, accesstest.NewAPI(accesstest.ClientCA(ours.PEM())), c.Now)
	fatal.If(t, s.callers.authority.read(t.Context()))
	good, _ := ours.Issue(t, nil)
	ask := func(from string, cert []byte) int {
		r := question("", accesstest.Parsed(t, cert))
		r.RemoteAddr = from
		_, err := s.Viewer(r)
		return statusOf(err)
	}
	for range 100 {
		diff.MustEqual(t, 0, ask("192.0.2.2:1", good), "a good one")
	}
	foreign, got := accesstest.NewCA(t), map[int]int{}
	for i := range reviewRate.burst + 10 {
		cert, _ := foreign.Issue(t, func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: fmt.Sprint("mallory", i)} })
		got[ask("192.0.2.1:1", cert)]++
	}
	if got[http.StatusUnauthorized] != reviewRate.burst || got[http.StatusTooManyRequests] != 10 {
		t.Errorf("answers by status: %v", got)
	}
	diff.Equal(t, 0, ask("192.0.2.2:1", good), "the good one then")
	c.Pass(2 * time.Hour) // beyond its dates
	diff.Equal(t, http.StatusUnauthorized, ask("192.0.2.2:1", good), "the good one when it is over")
}

// TestTokenEndsInTime: a follower of the log with a cached token is checked again ten
// seconds after the check, not after the start of following.
func TestTokenEndsInTime(t *testing.T) {
	api, c := accesstest.NewAPI(), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = []string{"shop"}
	s := newServer(t, api, c.Now)
	_, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	delete(api.Tokens, "alice's")
	c.Pass(cacheTTL - time.Second)
	v, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	if yes, err := v.May(t.Context(), serve.RowsOf("shop")); !yes || err != nil {
		t.Errorf("within ten seconds: %v, %v", yes, err)
	}
	c.Pass(time.Second)
	if yes, err := v.May(t.Context(), serve.RowsOf("shop")); yes || statusOf(err) != http.StatusUnauthorized {
		t.Errorf("then: %v, %v", yes, err)
	}
}

// TestTurns: each user has one request in flight, and a request that is cancelled
// while it waits leaves nothing behind.
func TestTurns(t *testing.T) {
	turns, err := lru.New[string, *semaphore.Weighted](maxCached)
	fatal.If(t, err)
	q := &callers{turns: turns}
	fatal.If(t, q.turn("alice").Acquire(t.Context(), 1))
	fatal.If(t, q.turn("bob").Acquire(t.Context(), 1))
	gone, stop := context.WithCancel(t.Context())
	stop()
	diff.Is(t, context.Canceled, q.turn("alice").Acquire(gone, 1), "alice's second")
	var wg sync.WaitGroup
	var mu sync.Mutex
	under, most := 0, 0
	for range 20 {
		wg.Go(func() {
			turn := q.turn("alice")
			if err := turn.Acquire(t.Context(), 1); err != nil {
				t.Error(err)
				return
			}
			defer turn.Release(1)
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			under--
			mu.Unlock()
		})
	}
	q.turn("alice").Release(1)
	wg.Wait()
	if most != 1 || turns.Len() != 2 {
		t.Errorf("%d at a time, %d remembered", most, turns.Len())
	}
}

// TestConnectionsInARow: a caller that connects again and again is closed before a
// handshake, and others are not.
func TestConnectionsInARow(t *testing.T) {
	c := testclock.New(time.Now())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	bounded := boundedListener{l, &share.Slots[netip.Addr]{}, newThrottle(c.Now, connectionRate, allConnectionRate)}
	defer bounded.Close()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			a, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- a
		}
	}()
	held := func() bool {
		d, err := net.Dial("tcp", l.Addr().String())
		fatal.If(t, err)
		defer d.Close()
		fatal.If(t, d.SetReadDeadline(time.Now().Add(time.Minute)))
		closed := make(chan struct{})
		go func() { defer close(closed); _, _ = d.Read(make([]byte, 1)) }()
		select {
		case a := <-accepted:
			a.Close()
			return true
		case <-closed:
			return false
		}
	}
	n := 0
	for range connectionRate.burst + 20 {
		if held() {
			n++
		}
	}
	diff.Equal(t, connectionRate.burst, n, "accepted of a row")
	c.Pass(time.Second)
	if !held() {
		t.Error("nothing is accepted a second later")
	}
}

// TestThrottle: a burst, then so many a second, of each address; IPv6 addresses of
// one network count together.
func TestThrottle(t *testing.T) {
	c := testclock.New(time.Now())
	th := newThrottle(c.Now, reviewRate, allReviewRate)
	taken := func(n int, from func(int) netip.Addr) (out int) {
		for i := range n {
			if th.take(from(i)) {
				out++
			}
		}
		return out
	}
	one := func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	diff.Equal(t, reviewRate.burst, taken(100, one), "a burst of")
	mapped := func(int) netip.Addr { return netip.MustParseAddr("::ffff:192.0.2.1") }
	diff.Equal(t, 0, taken(1, mapped), "taken by the same address in other words")
	c.Pass(2 * time.Second)
	diff.Equal(t, 2*int(reviewRate.perSecond), taken(100, one), "in two seconds")
	network := netip.MustParsePrefix("2001:db8::/64").Addr().As16()
	diff.Equal(t, reviewRate.burst, taken(100, func(i int) netip.Addr { network[15] = byte(i); return netip.AddrFrom16(network) }), "an IPv6 network takes")
	c.Pass(time.Hour)
	if n := taken(10*allReviewRate.burst, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) }); n != allReviewRate.burst {
		t.Errorf("all together take %d", n)
	}
}
