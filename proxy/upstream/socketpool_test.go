package upstream

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// addressFor is the only address of a name, for upstreams that answer everything.
func addressFor(qname string) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(strings.ToLower(qname)))
	b := h.Sum(nil)
	return netip.AddrFrom4([4]byte{198, 18 + b[0]%2, b[1], b[2]}).String()
}

// erratic answers late, in any order, twice, or first with what belongs to others.
func erratic(q *dns.Msg, _ bool) [][]byte {
	n := q.Question[0].Name
	good := upstreamtest.Says(q, nil, n+" 60 IN A "+addressFor(n))
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	switch rand.IntN(6) {
	case 0:
		return [][]byte{good, good}
	case 1:
		return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Question[0].Name = "x" + n }, n+" 60 IN A "+forged), good}
	case 2:
		return [][]byte{good[:len(good)-3], good}
	}
	return [][]byte{good}
}

// TestAnswersAreNotMixedUp: many queries share few sockets, and each has the
// answer to its own question.
func TestAnswersAreNotMixedUp(t *testing.T) {
	up := upstreamtest.Start(t, erratic)
	u := newUpstream(up.Addr, new(Pool))
	defer u.close()
	var most atomic.Int64
	var wg sync.WaitGroup
	for w := range 200 {
		wg.Go(func() {
			for i := range 15 {
				n := fmt.Sprintf("n%d-%d.test", w, i)
				end := time.Now().Add(time.Minute)
				m, err := u.exchange(askFor(t, n), bounds{udp: end, tcp: end})
				if err != nil || len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != addressFor(n+".") {
					t.Errorf("%s: %v, %v", n, m, err)
					return
				}
				most.Store(max(most.Load(), int64(u.sockets.count())))
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > 200/socketQueries+4 {
		t.Errorf("%d sockets for 200 queries at a time", n)
	}
}

// TestBurstOpensSockets: a burst is not limited by the room on one socket, and beyond the
// bound the sockets carry more.
func TestBurstOpensSockets(t *testing.T) {
	s, _ := newSocket(t)
	u := s.pool.u
	var all []*asked
	for range socketQueries*maxSockets + 200 {
		a := newAsked(t, u, "www.example.org")
		u.sockets.send(&a.exchange, new(Batch))
		all = append(all, a)
	}
	sockets := slices.Clone(u.sockets.sockets)
	diff.Equal(t, maxSockets, len(sockets), "sockets")
	for _, s := range sockets {
		if _, _, waiting := s.is(); waiting < socketQueries || waiting > socketQueries+200 {
			t.Errorf("%d under way on one", waiting)
		}
		s.fail(net.ErrClosed)
	}
	for _, a := range all {
		if _, err := a.wait(); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
	u.sockets.send(&newAsked(t, u, "www.example.org").exchange, new(Batch))
	diff.Equal(t, 1, u.sockets.count(), "sockets")
}

// perPort is an upstream like a Service's address: each source port is mapped to one
// endpoint, the first ports to a dead one.
func perPort(t *testing.T, dead int) (netip.AddrPort, func() int) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	t.Cleanup(func() { _ = pc.Close() })
	var mu sync.Mutex
	var ports []uint16
	go upstreamtest.EachQuery(pc, func(q *dns.Msg, from netip.AddrPort) {
		mu.Lock()
		if !slices.Contains(ports, from.Port()) {
			ports = append(ports, from.Port())
		}
		alive := slices.Index(ports, from.Port()) >= dead
		mu.Unlock()
		if alive {
			_, _ = pc.WriteToUDPAddrPort(upstreamtest.Honest("192.0.2.1")(q, false)[0], from)
		}
	})
	return pc.LocalAddr().(*net.UDPAddr).AddrPort(), func() int { mu.Lock(); defer mu.Unlock(); return len(ports) }
}

// TestDeadSocketIsRetired: a socket that is tied to a dead endpoint behind a living address
// delays its queries by a moment, and no later ones.
func TestDeadSocketIsRetired(t *testing.T) {
	to, ports := perPort(t, 1)
	u := newUpstream(to, new(Pool))
	defer u.close()
	ask := func() time.Duration {
		t.Helper()
		began := time.Now()
		end := began.Add(2 * time.Minute)
		if _, err := u.exchange(askFor(t, "www.example.org"), bounds{udp: end, tcp: end, maxFails: 2}); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	if took := ask(); took < retransmitAfter || took > 30*time.Second {
		t.Errorf("the first took %v", took)
	}
	n, late := ports(), 0
	for range 10 {
		took := ask()
		if took > 30*time.Second {
			t.Errorf("another took %v", took)
		}
		if took >= retransmitAfter { // the machine stood still, and the query was sent on another socket too
			late++
		}
	}
	if more := ports() - n; late > 5 || more > 2+2*late {
		t.Errorf("%d of 10 waited, %d more sockets", late, more)
	}
}

// TestSilentSocketsAreRetired: one query without an answer retires the sockets that have
// received nothing since, and no others.
func TestSilentSocketsAreRetired(t *testing.T) {
	silent, _ := newSocket(t)
	p := &silent.pool.u.sockets
	idle, lively := p.opened(t), p.opened(t)
	a, b := silent.put(t, "slow.test"), lively.put(t, "www.example.org")
	lively.take(b.reply(t, nil), p.u.now())
	p.mu.Lock()
	silent.opened = a.began + 1 // for this query
	p.mu.Unlock()
	silent.over(a)
	if !a.ended() || !errors.Is(a.err, os.ErrDeadlineExceeded) {
		t.Errorf("ended %v: %v", a.ended(), a.err)
	}
	if !silent.closed || !idle.closed || lively.draining {
		t.Errorf("closed: the silent %v, the idle %v; the lively drains: %v", silent.closed, idle.closed, lively.draining)
	}
	if len(p.sockets) != 1 || p.sockets[0] != lively {
		t.Errorf("%d sockets are left", len(p.sockets))
	}
}

// openNow counts the process's file descriptors and goroutines.
func openNow(t *testing.T) (files, goroutines int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all), runtime.NumGoroutine()
}

// TestNothingIsLeftAfterClose: neither sockets nor goroutines, whatever was under
// way over UDP and TCP.
func TestNothingIsLeftAfterClose(t *testing.T) {
	gate := make(chan struct{})
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		switch n := q.Question[0].Name; {
		case strings.HasPrefix(n, "slow"):
			<-gate
			return nil
		case strings.HasPrefix(n, "long") && !tcp, strings.HasPrefix(n, "both") && !tcp:
			return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true })}
		case strings.HasPrefix(n, "both"):
			<-gate
			return nil
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	files, goroutines := openNow(t)
	var ups []*upstream
	var wg sync.WaitGroup
	for range 2 {
		u := newUpstream(up.Addr, new(Pool))
		ups = append(ups, u)
		for i := range 20 {
			for _, kind := range []string{"slow", "long", "both", "quick"} {
				wg.Go(func() {
					end := time.Now().Add(time.Minute)
					_, _ = u.exchange(askFor(t, fmt.Sprintf("%s%d.test", kind, i)), bounds{udp: end, tcp: end, maxFails: 2})
				})
			}
		}
	}
	fatal.Await(t, "the upstream is not asked", func() bool { return up.UDP.Load() >= 2*4*20 })
	began := time.Now()
	for _, u := range ups {
		u.close()
	}
	wg.Wait()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("what was under way ended after %v", took)
	}
	close(gate)
	fatal.Await(t, "something is left open", func() bool {
		f, g := openNow(t)
		return f <= files && g <= goroutines
	})
	for _, u := range ups {
		diff.Equal(t, 0, u.conns.count(), "connections left in the list")
	}
}

// TestIdleSocketsAreClosed: without a query there is nothing left after their age.
func TestIdleSocketsAreClosed(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))
	u := newUpstream(up.Addr, new(Pool))
	defer u.close()
	u.created = u.created.Add(-time.Hour)
	end := time.Now().Add(time.Minute)
	if _, err := u.exchange(askFor(t, "www.example.org"), bounds{udp: end, tcp: end}); err != nil {
		t.Fatal(err)
	}
	u.sockets.mu.Lock()
	s := u.sockets.sockets[0]
	s.opened -= socketAge
	u.sockets.mu.Unlock()
	u.wake(0)
	fatal.Await(t, "an old socket stays", func() bool { _, closed, _ := s.is(); return closed && u.sockets.count() == 0 })
	diff.Equal(t, never, time.Duration(u.clock.at.Load()), "the clock with nothing to do")
}
