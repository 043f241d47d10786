package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestSharedAnswerGrantsEachPod: several pods ask the same at once; the upstream
// is asked once, and each pod is granted for itself and told its own reply.
func TestSharedAnswerGrantsEachPod(t *testing.T) {
	l := newLab(t, nil)
	hold := make(chan struct{})
	up := startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		<-hold
		return [][]byte{says(q, nil, "www.example.org. 9000 IN A 192.0.2.1", "www.example.org. 9000 IN A 10.96.0.1")}
	})
	l.live(zoneOf(up))
	pods := map[string]string{"10.1.0.2": "web", "10.1.0.3": "quiet", "10.1.0.4": "strict", "10.1.0.6": "free", "10.1.0.5": "watched"}
	replies := map[string]*dns.Msg{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for from := range pods {
		wg.Go(func() {
			r := l.ask(from, "www.example.org", dns.TypeA)
			mu.Lock()
			defer mu.Unlock()
			replies[from] = r
		})
	}
	fatal.Await(t, "one call", func() bool { return l.s.Stats().Coalesced == uint64(len(pods)-1) })
	close(hold)
	wg.Wait()
	diff.Equal(t, 1, up.UDP.Load(), "times asked")
	var got []string
	for _, g := range l.granter.Grants() {
		got = append(got, fmt.Sprint(g.Pod.Name, g.Addrs))
	}
	slices.Sort(got)
	equal(t, "grants", got, []string{"quiet[192.0.2.1]", "strict[192.0.2.1]", "web[192.0.2.1]"})
	whole := []string{"www.example.org. 9000 A 192.0.2.1", "www.example.org. 9000 A 10.96.0.1"}
	for from, pod := range pods {
		want := []string{"www.example.org. 3600 A 192.0.2.1"}
		if pod == "free" || pod == "watched" {
			want = whole
		}
		equal(t, pod, data(replies[from].Answer), want)
	}
}

// TestNoAnswerWithoutItsGrant is the first promise under load: at the moment a
// selected pod holds an address, its grant was acknowledged.
func TestNoAnswerWithoutItsGrant(t *testing.T) {
	l := newLab(t, nil)
	var mu sync.Mutex
	open := map[string]bool{} // pod and address that the kernel has
	l.granter.Err = func(_ context.Context, grants []policy.Grant) error {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range grants {
			for _, a := range g.Addrs {
				open[g.Pod.Name+" "+a.String()] = true
			}
		}
		return nil
	}
	address := func(qname string) string {
		sum := 0
		for _, c := range []byte(qname) {
			sum += int(c)
		}
		return fmt.Sprintf("198.18.%d.%d", sum>>8, sum&0xff)
	}
	l.live(zoneOf(startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		qname := q.Question[0].Name
		return [][]byte{says(q, nil, qname+" 60 IN A "+address(qname))}
	})))
	at := l.listen()
	var wg sync.WaitGroup
	for _, pod := range []struct{ name, ip, network string }{
		{"web", "127.0.0.2", "udp"}, {"web", "127.0.0.2", "tcp"}, {"dead", "127.0.0.8", "udp"}, {"dead", "127.0.0.8", "tcp"},
	} {
		c := client(t, pod.network, pod.ip, at)
		wg.Go(func() {
			for i := range 200 {
				q := newQuery(fmt.Sprintf("n%d.wild.test", rand.IntN(50)), dns.TypeA)
				if c.WriteMsg(q) != nil {
					t.Error("not sent")
					return
				}
				r, err := c.ReadMsg()
				if err != nil || r.Id != q.Id || len(r.Answer) != 1 {
					t.Errorf("query %d: %v, %v", i, r, err)
					return
				}
				a := r.Answer[0].(*dns.A).A.String()
				mu.Lock()
				ok := open[pod.name+" "+a]
				mu.Unlock()
				if !ok || a != address(q.Question[0].Name) {
					t.Errorf("%s holds %s for %s without a grant", pod.name, a, q.Question[0].Name)
				}
			}
		})
	}
	wg.Wait()
}

// TestHalfClosedClientGetsItsAnswer: a client may end its side after the query.
func TestHalfClosedClientGetsItsAnswer(t *testing.T) {
	l := newLab(t, labTable)
	h := l.holding()
	defer h.release()
	c := client(t, "tcp", "127.0.0.2", l.listen())
	fatal.If(t, c.WriteMsg(newQuery("slow.test", dns.TypeA)))
	<-h.entered
	fatal.If(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite())
	h.release()
	if r, err := c.ReadMsg(); err != nil || r.Rcode != dns.RcodeNameError {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := c.ReadMsg(); err == nil {
		t.Error("the connection stays open")
	}
}

// TestClientsBitsReachTheUpstream: DO, CD and AD are the client's; the buffer is ours.
func TestClientsBitsReachTheUpstream(t *testing.T) {
	l := newLab(t, nil)
	seen := make(chan *dns.Msg, 1)
	l.live(zoneOf(startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		seen <- q
		return honest("192.0.2.1")(q, false)
	})))
	for i := range 8 {
		m := newQuery("www.example.org", dns.TypeA)
		do, cd, ad := i&1 != 0, i&2 != 0, i&4 != 0
		m.CheckingDisabled, m.AuthenticatedData = cd, ad
		m.SetEdns0(4000, do)
		l.send("10.1.0.2", m)
		q := <-seen
		opt := q.IsEdns0()
		if q.CheckingDisabled != cd || q.AuthenticatedData != ad || opt.Do() != do || opt.UDPSize() != wire.AdvertisedSize || !q.RecursionDesired || q.Id == m.Id && i > 0 && q.Id == 0 {
			t.Errorf("%v became %v", m, q)
		}
	}
}
