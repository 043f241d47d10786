package proxy

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// timers are the clock of held queries: they end when a test says so.
type timers struct {
	mu   sync.Mutex
	all  map[int]func()
	next int
	most time.Duration
}

func (l *lab) timers() *timers {
	c := &timers{all: map[int]func(){}}
	l.s.after = func(d time.Duration, f func()) func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		id := c.next
		c.next++
		c.all[id], c.most = f, max(c.most, d)
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			_, pending := c.all[id]
			delete(c.all, id)
			return pending
		}
	}
	return c
}

// end lets the time of all that wait be over.
func (c *timers) end() {
	c.mu.Lock()
	all := c.all
	c.all = map[int]func(){}
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// without are the lab's pods but for these: their addresses are not known yet.
func without(names ...string) (pods []policy.Pod) {
	for _, p := range labPods {
		keep := true
		for _, n := range names {
			keep = keep && p.Name != n
		}
		if keep {
			pods = append(pods, p)
		}
	}
	return pods
}

// newParkLab is a lab that does not know two of its pods yet, and holds their queries.
func newParkLab(t testing.TB) (*lab, *timers) {
	l := newLab(t, labTable)
	c := l.timers()
	l.s.Publish(compiled(t, labPolicies, without("strict", "free")))
	l.s.SetCluster(Cluster{Hold: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}})
	return l, c
}

func (l *lab) parkedNow() (n int) {
	l.s.parked.mu.Lock()
	defer l.s.parked.mu.Unlock()
	for _, of := range l.s.parked.bySource {
		n += len(of)
	}
	diff.Equal(l.t, l.s.parked.all, n, "waiting, as counted")
	return n
}

func (l *lab) awaitParked(n int) {
	l.t.Helper()
	fatal.Await(l.t, fmt.Sprintf("there are never %d that wait", n), func() bool { return l.parkedNow() == n })
}

func put(t testing.TB, c *dns.Conn, m *dns.Msg) {
	t.Helper()
	fatal.If(t, c.WriteMsg(m))
}

func got(t testing.TB, c *dns.Conn) *dns.Msg {
	t.Helper()
	r, err := c.ReadMsg()
	fatal.If(t, err)
	return r
}

// TestParkedUntilItsPodIsKnown: a query from an unknown address waits, and is then
// handled by the snapshot that knows it: as a selected or an unselected pod's.
func TestParkedUntilItsPodIsKnown(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		for _, tt := range []struct {
			pod, from, name string
			rcode, answers  int
			logged          bool
		}{
			{"strict", "127.0.0.4", "other.test", dns.RcodeRefused, 0, true},
			{"strict", "127.0.0.4", "www.example.org", dns.RcodeSuccess, 3, true},
			{"free", "127.0.0.6", "other.test", dns.RcodeSuccess, 1, false},
		} {
			t.Run(network+" "+tt.pod+" "+tt.name, func(t *testing.T) {
				l, clock := newParkLab(t)
				at := l.listen()
				c := client(t, network, tt.from, at)
				put(t, c, newQuery(tt.name, dns.TypeA))
				l.awaitParked(1)
				// A snapshot that does not know it either changes nothing.
				l.s.Publish(compiled(t, labPolicies, without("strict", "free", "web")))
				if l.parkedNow() != 1 || len(l.up.asked) != 0 || len(l.granter.Grants()) != 0 {
					t.Fatalf("before it is known: asked %v, granted %v", l.up.asked, l.granted())
				}
				snap := compiled(t, labPolicies, labPods)
				l.s.Publish(snap)
				r := got(t, c)
				if r.Rcode != tt.rcode || len(r.Answer) != tt.answers {
					t.Errorf("%v", r)
				}
				if tt.logged && l.log.last(t).Pod.Name != tt.pod || !tt.logged && len(l.log.recs) != 0 {
					t.Errorf("logged %v", l.log.recs)
				}
				if s := l.s.Stats(); s.Parked != 1 || s.ParkFailed != 0 || s.UnknownSources != 0 || s.Queries != 1 {
					t.Errorf("stats %+v", s)
				}
				if len(clock.all) != 0 || clock.most != 2*time.Second {
					t.Errorf("%d timers left, the longest was of %v", len(clock.all), clock.most)
				}
				// Further queries do not wait.
				if r = exchange(t, c, newQuery(tt.name, dns.TypeA)); r.Rcode != tt.rcode || l.s.Stats().Parked != 1 {
					t.Errorf("the next query: %v", r)
				}
			})
		}
	}
}

// TestParkedTooLongIsServfail: the source stays unknown.
func TestParkedTooLongIsServfail(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		l, clock := newParkLab(t)
		at := l.listen()
		c := client(t, network, "127.0.0.4", at)
		m := newQuery("www.example.org", dns.TypeA)
		put(t, c, m)
		l.awaitParked(1)
		clock.end()
		if r := got(t, c); r.Rcode != dns.RcodeServerFailure || r.Id != m.Id || len(l.up.asked) != 0 {
			t.Errorf("%s: %v, asked %v", network, r, l.up.asked)
		}
		if s := l.s.Stats(); s.Parked != 1 || s.ParkFailed != 1 || l.parkedNow() != 0 {
			t.Errorf("%s: stats %+v, %d wait", network, s, l.parkedNow())
		}
		l.s.Publish(compiled(t, labPolicies, labPods))
		wantAnswer(t, 3, exchange(t, c, m), network, "asked again")
	}
}

// TestOnlyUnknownAddressesInsideAreParked: pods and the node are answered immediately,
// and unknown sources outside are refused.
func TestOnlyUnknownAddressesInsideAreParked(t *testing.T) {
	l, _ := newParkLab(t)
	for from, parked := range map[string]bool{
		"10.1.0.4": true, "10.1.0.250": true, "2001:db8:1::77": true, // not known yet
		"10.1.0.2": false, "2001:db8:1::2": false, "10.1.0.7": false, // pods
		"10.1.1.4": false, "198.51.100.7": false, "2001:db8:2::2": false, // unknown sources
		"127.0.0.1": false, "169.254.20.53": false, // the node, the socket itself
	} {
		if who := l.s.identify(netip.MustParseAddr(from), netip.MustParseAddr("169.254.20.53")); who.unidentified != parked || parked && who.known {
			t.Errorf("%s: %+v", from, who)
		}
	}
	l.s.SetCluster(Cluster{})
	if l.s.identify(netip.MustParseAddr("10.1.0.4"), netip.Addr{}).unidentified {
		t.Error("held without a range")
	}
}

// parked is a query that waits, and where its reply comes.
func (l *lab) parked(packet []byte) (q *parkedQuery, reply chan []byte) {
	to := &parkedReplier{replies: make(chan []byte, 1)}
	return &parkedQuery{packet: packet, to: to}, to.replies
}

type parkedReplier struct {
	replies chan []byte
	over    func()
	who     identity
}

func (r *parkedReplier) stream() bool { return false }

func (r *parkedReplier) reply(packet []byte, _ bool) { r.replies <- append([]byte(nil), packet...) }

func (r *parkedReplier) done(q *query) {
	if r.who = q.client; r.over != nil {
		r.over()
	}
}

// TestPublishedSinceTheIdentification: the snapshot that knows the source comes
// between the look at it and the wait, which nothing would end but its time.
func TestPublishedSinceTheIdentification(t *testing.T) {
	l, clock := newParkLab(t)
	who := l.s.identify(netip.MustParseAddr("10.1.0.4"), netip.Addr{})
	if !who.unidentified {
		t.Fatal("known already")
	}
	l.s.Publish(compiled(t, labPolicies, labPods))
	q, reply := l.parked(packed(t, newQuery("www.example.org", dns.TypeA)))
	over := make(chan struct{})
	to := q.to.(*parkedReplier)
	to.over = func() { close(over) }
	if !l.s.park(who, q) {
		t.Fatal("no room")
	}
	<-reply
	<-over
	if who := to.who; who.view == nil || who.view.Pod.Name != "strict" || len(clock.all) != 0 || l.parkedNow() != 0 {
		t.Errorf("resumed as %+v, %d timers", who, len(clock.all))
	}
}

// TestParkTimeoutDuringAPublish: exactly one of the two replies.
func TestParkTimeoutDuringAPublish(t *testing.T) {
	l, clock := newParkLab(t)
	const times = 200
	var resumed atomic.Int64
	for range times {
		l.s.Publish(compiled(t, labPolicies, without("strict")))
		before := resumed.Load()
		who := l.s.identify(netip.MustParseAddr("10.1.0.4"), netip.Addr{})
		q, _ := l.parked(packed(t, newQuery("www.example.org", dns.TypeA)))
		q.to.(*parkedReplier).over = func() { resumed.Add(1) }
		if !l.s.park(who, q) {
			t.Fatal("no room")
		}
		next := compiled(t, labPolicies, labPods)
		var race sync.WaitGroup
		race.Go(clock.end)
		race.Go(func() { l.s.Publish(next) })
		race.Wait()
		fatal.Await(t, "not resumed", func() bool { return resumed.Load() > before })
		diff.MustEqual(t, 0, l.parkedNow(), "waiting")
	}
	diff.Equal(t, times, resumed.Load(), "resumed")
}

// TestClientGaveUp: the client is gone when its pod is known.
func TestClientGaveUp(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		l, _ := newParkLab(t)
		at := l.listen()
		c := client(t, network, "127.0.0.4", at)
		put(t, c, newQuery("www.example.org", dns.TypeA))
		l.awaitParked(1)
		_ = c.Close()
		l.s.Publish(compiled(t, labPolicies, labPods))
		fatal.Await(t, "its query is not answered", func() bool { return l.s.Stats().Allowed == 1 })
		fatal.Await(t, "its place is not given back", func() bool { s := l.s.Stats(); return s.InFlight == 0 && s.Connections == 0 })
		wantAnswer(t, 3, exchange(t, client(t, network, "127.0.0.4", at), newQuery("www.example.org", dns.TypeA)), network, "the next")
	}
}

// TestParkedIsNotHung: a parked query is not in flight, so the watchdog ignores it, and
// it takes no slot of the pods; when it resumes it counts.
func TestParkedIsNotHung(t *testing.T) {
	l, _ := newParkLab(t)
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	var now time.Duration
	l.s.now = func() time.Time { return noon.Add(now) }
	who := l.s.identify(netip.MustParseAddr("10.1.0.4"), at.Addr())
	packet := packed(t, newQuery("slow.test", dns.TypeA))
	// The pod "free" of another name, since strict would be refused.
	who.addr = netip.MustParseAddr("10.1.0.6")
	q, done := l.parked(packet)
	q.local = at.Addr()
	l.s.park(who, q)
	limit := longest(l.s.setup.Load().config)
	for range 4 {
		now += limit + time.Second
		if l.s.stuck() || l.s.Stats().InFlight != 0 {
			t.Fatalf("at %v the proxy is stuck with a held query", now)
		}
	}
	l.s.Publish(compiled(t, labPolicies, labPods))
	<-h.entered
	diff.Equal(t, 1, l.s.Stats().InFlight, "under way")
	hung := false
	for range 4 {
		now += limit + time.Second
		hung = hung || l.s.stuck()
	}
	if !hung {
		t.Error("one that hangs after it was held is not noticed")
	}
	h.release()
	<-done
}

// TestParkedSourceBecomesTheNodes: the address turns out to be the node's own.
func TestParkedSourceBecomesTheNodes(t *testing.T) {
	l, _ := newParkLab(t)
	c := client(t, "udp", "127.0.0.9", l.listen())
	put(t, c, newQuery("other.test", dns.TypeA))
	l.awaitParked(1)
	l.s.SetCluster(Cluster{Nodes: addrsOf("10.1.0.9"), Hold: l.s.cluster.Hold})
	wantAnswer(t, 1, got(t, c))
}

// TestParkedBeforeTheFirstSnapshot: an agent that has just started may get the queries of
// a killed one, from pods that it will know. Other sources are refused then.
func TestParkedBeforeTheFirstSnapshot(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		l := newLab(t, labTable)
		clock := l.timers()
		l.s.snapshot.Store(nil)
		at := l.listen()
		pod, unknown := client(t, network, "127.0.0.4", at), client(t, network, "127.0.0.9", at)
		put(t, pod, newQuery("www.example.org", dns.TypeA))
		put(t, unknown, newQuery("www.example.org", dns.TypeA))
		l.awaitParked(2)
		l.s.Publish(compiled(t, labPolicies, labPods))
		wantAnswer(t, 3, got(t, pod), network)
		clock.end()
		wantCode(t, dns.RcodeServerFailure, got(t, unknown), network, "a stranger")
		wantCode(t, dns.RcodeRefused, exchange(t, client(t, network, "127.0.0.9", at), newQuery("www.example.org", dns.TypeA)), network, "a stranger after the snapshot")
	}
}
