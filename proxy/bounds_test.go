package proxy

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// gate is a resolver whose answers wait until it is open, for names that begin with the prefix.
type gate struct {
	resolver
	prefix  string
	open    chan struct{}
	once    sync.Once
	entered chan struct{}
	mu      sync.Mutex
	asked   int
	now     int
	most    int // at a time
}

// gate makes the lab's upstream hold the answers for names that begin with the prefix.
func (l *lab) gate(prefix string) *gate {
	g := &gate{resolver: l.up, prefix: prefix, open: make(chan struct{}), entered: make(chan struct{}, 1000)}
	l.use(l.s.setup.Load().config, g)
	return g
}

func (l *lab) holding() *gate { return l.gate("slow") }

func (g *gate) resolve(a wire.Query) (found, error) {
	g.count(1)
	defer g.count(-1)
	if strings.HasPrefix(a.Name.String(), g.prefix) {
		g.entered <- struct{}{}
		<-g.open
	}
	return g.resolver.resolve(a)
}

func (g *gate) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += by
	g.asked, g.most = g.asked+max(by, 0), max(g.most, g.now)
}

func (g *gate) counts() (asked, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked, g.most
}

// reaches waits until so many queries are there at a time.
func (g *gate) reaches(t testing.TB, n int) {
	t.Helper()
	fatal.Await(t, "too few queries at a time", func() bool { _, most := g.counts(); return most >= n })
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func TestSlowQueryDelaysNoOther(t *testing.T) {
	l := newLab(t, labTable)
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	for _, network := range []string{"udp", "tcp"} {
		c := client(t, network, "127.0.0.2", at)
		slow := newQuery("slow.test", dns.TypeA)
		fatal.If(t, c.WriteMsg(slow))
		<-h.entered
		// On TCP the same connection: its answers come out of order.
		wantAnswer(t, 3, exchange(t, c, newQuery("www.example.org", dns.TypeA)), network)
	}
}

func TestPodAndAllAreBounded(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.QueriesPerPod, config.Limits.Queries = 3, 6
	l.use(&config, l.up)
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	web, quiet := client(t, "udp", "127.0.0.2", at), client(t, "udp", "127.0.0.8", at)
	fill := func(c *dns.Conn, n int) {
		for range n {
			fatal.If(t, c.WriteMsg(newQuery("slow.test", dns.TypeA)))
			<-h.entered
		}
	}
	fill(web, 3)
	wantCode(t, dns.RcodeServerFailure, exchange(t, web, newQuery("www.example.org", dns.TypeA)), "the fourth of one pod")
	fill(quiet, 2)
	wantCode(t, dns.RcodeServerFailure, exchange(t, quiet, newQuery("www.example.org", dns.TypeA)), "beyond what the others leave free")
	if err := l.s.SelfQuery(context.Background(), at); err != nil {
		t.Errorf("a flood of the pods trips the dead-man switch: %v", err)
	}
	if s := l.s.Stats(); s.ShedPod != 1 || s.ShedAll != 1 || s.InFlight < 5 {
		t.Errorf("stats %+v", s)
	}
	h.release()
	for range 3 {
		if _, err := web.ReadMsg(); err != nil {
			t.Fatal(err)
		}
	}
	fatal.Await(t, "places are not given back", func() bool { return l.s.Stats().InFlight == 0 })
	wantAnswer(t, 3, exchange(t, web, newQuery("www.example.org", dns.TypeA)), "with room again")
}

func TestCloseAnswersQueriesInFlight(t *testing.T) {
	l := newLab(t, map[string][]string{"slow.wild.test A": {"slow.wild.test. 60 IN A 192.0.2.1"}})
	h := l.holding()
	at := l.listen()
	clients := []*dns.Conn{client(t, "udp", "127.0.0.2", at), client(t, "tcp", "127.0.0.2", at)}
	for _, c := range clients {
		fatal.If(t, c.WriteMsg(newQuery("slow.wild.test", dns.TypeA)))
		<-h.entered
	}
	closed := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		closed <- l.s.Close(ctx)
	}()
	fatal.Await(t, "it closes", func() bool { return len(l.s.Addrs()) == 0 })
	h.release()
	for i, c := range clients {
		if r, err := c.ReadMsg(); err != nil || len(r.Answer) != 1 {
			t.Errorf("client %d: %v, %v", i, r, err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	diff.Is(t, net.ErrClosed, l.s.Listen([]netip.AddrPort{loopback}), "a closed server listens")
}

func TestCloseEndsWithItsContext(t *testing.T) {
	l := newLab(t, nil)
	h := l.holding()
	defer h.release()
	fatal.If(t, l.s.Listen([]netip.AddrPort{loopback}))
	c := client(t, "udp", "127.0.0.2", l.s.Addrs()[0])
	fatal.If(t, c.WriteMsg(newQuery("slow.test", dns.TypeA)))
	<-h.entered
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	diff.Is(t, context.DeadlineExceeded, l.s.Close(ctx), "close")
}

func TestTCPAbuseEndsTheConnection(t *testing.T) {
	l := newLab(t, labTable)
	at := l.listen()
	for name, bytes := range map[string][]byte{
		"a length below a header": {0, 5, 1, 2, 3, 4, 5},
		"a length of 65535":       {0xff, 0xff, 0, 0},
		"a response":              append([]byte{0, 12, 0, 1, 0x80, 0}, make([]byte, 8)...),
	} {
		c := client(t, "tcp", "127.0.0.2", at)
		if _, err := c.Conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c.Conn).ReadByte(); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
	diff.Equal(t, 3, l.s.Stats().Malformed, "malformed")
}

func TestTCPConnectionsAreBounded(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.ConnectionsPerPod, config.Limits.Connections = 2, 3
	l.use(&config, l.up)
	at := l.listen()
	open := func(from string) error {
		c := client(t, "tcp", from, at)
		m := newQuery("www.example.org", dns.TypeA)
		if err := c.WriteMsg(m); err != nil {
			return err
		}
		_, err := c.ReadMsg()
		return err
	}
	for i, tt := range []struct {
		from string
		ok   bool
	}{{"127.0.0.2", true}, {"127.0.0.2", true}, {"127.0.0.2", false}, {"127.0.0.3", true}, {"127.0.0.4", false}, {"127.0.0.1", true}} {
		if err := open(tt.from); (err == nil) != tt.ok {
			t.Errorf("connection %d from %s: %v", i, tt.from, err)
		}
	}
	if s := l.s.Stats(); s.ShedConnections != 2 || s.Connections != 4 {
		t.Errorf("stats %+v", s)
	}
}

// TestOnePodsFloodIsShed: beyond its rate a pod gets SERVFAIL, beyond that rate
// too it hears nothing; its neighbour and the proxy itself are answered.
func TestOnePodsFloodIsShed(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 10, 5
	l.use(&config, l.up)
	at := l.listen()
	for i, network := range []string{"udp", "tcp"} {
		from := []string{"127.0.0.2", "127.0.0.8"}[i]
		flood := client(t, network, from, at)
		for range 14 {
			fatal.If(t, flood.WriteMsg(newQuery("www.example.org", dns.TypeA)))
		}
		replies := map[int]int{}
		for range 10 {
			r, err := flood.ReadMsg()
			fatal.If(t, err)
			replies[r.Rcode]++
		}
		if replies[dns.RcodeSuccess] != 5 || replies[dns.RcodeServerFailure] != 5 {
			t.Errorf("%s: replies by code %v, want 5 answers and 5 SERVFAIL", network, replies)
		}
		fatal.Await(t, "the flood is not dropped", func() bool { return l.s.Stats().RateSilenced == uint64(4*(i+1)) })
	}
	wantCode(t, dns.RcodeSuccess, exchange(t, client(t, "udp", "127.0.0.3", at), newQuery("www.example.org", dns.TypeA)), "the neighbour")
	for range 20 {
		fatal.If(t, l.s.SelfQuery(context.Background(), at), "the proxy itself")
	}
	if s := l.s.Stats(); s.RateLimited != 18 || s.RateSilenced != 8 || s.ShedPod != 0 || s.Queries < 31 {
		t.Errorf("stats %+v", s)
	}
	paced := func() bool {
		_, rcode := l.s.newHandler(at.Addr()).meet(mustAddr("127.0.0.2"), l.s.elapsed())
		return rcode == dns.RcodeSuccess
	}
	begun := l.s.started
	l.s.started = begun.Add(-100 * time.Millisecond) // as if that had passed
	if !paced() || paced() {
		t.Error("after a tenth of a second it is not exactly one query more")
	}
}
