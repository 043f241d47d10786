package servername

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const neighbour = "127.0.1.2"

// ask opens a connection of the neighbour, and returns how long its first byte took.
func (l *lab) ask() time.Duration {
	l.Helper()
	begin := time.Now()
	c := l.dial(neighbour)
	fatal.If(l, write(c, helloFor("other.test")))
	s := <-l.taken
	fatal.If(l, write(s, answer))
	expect(l, c, string(answer))
	took := time.Since(begin)
	reset(c)
	_ = s.Close()
	return took
}

// TestBounds: each bound of a pod resets what is beyond it, and leaves the neighbour alone.
func TestBounds(t *testing.T) {
	for _, s := range []struct {
		name   string
		limits corefile.RelayLimits
		hello  bool
		detail string
	}{
		{"connections", bounds(100, 5, 100, 100), true, "connections of the pod"},
		{"hellos", bounds(100, 100, 100, 5), false, "connections of the pod that wait for a ClientHello"},
	} {
		t.Run(s.name, func(t *testing.T) {
			l := newLab(t, s.limits)
			for range 5 {
				c := l.dial()
				if s.hello {
					fatal.If(t, write(c, helloFor("good.test")))
					l.accepted()
				}
			}
			fatal.Await(t, "all are open", func() bool { return l.Stats().Connections == 5 })
			l.refused()
			d := l.denial()
			diff.Equal(t, ReasonLimit, d.Reason)
			diff.Equal(t, s.detail, d.Detail)
			diff.Equal(t, podA, d.Pod)
			l.ask()
		})
	}
}

// TestArrivedHelloTakesNoPlace: after a pause of the machine, many connections with their hello are accepted at once.
func TestArrivedHelloTakesNoPlace(t *testing.T) {
	l := newLab(t, bounds(100, 100, 1, 1))
	l.dial() // which waits for its hello
	fatal.Await(t, "it waits", func() bool { return l.Stats().Hellos == 1 })
	over := make(chan struct{})
	l.lead(func(*net.TCPConn) (netip.AddrPort, error) { <-over; return l.to(), nil })
	for range 20 {
		fatal.If(t, write(l.dial(), helloFor("good.test")))
	}
	close(over)
	for range 20 {
		l.accepted()
	}
	l.refused()
	diff.Equal(t, "connections of the pod that wait for a ClientHello", l.denial().Detail)
}

// arrive connects to the relay, which accepts the connection when a hello has arrived.
func (l *lab) arrive(hello []byte) {
	l.Helper()
	sent := make(chan struct{})
	l.lead(func(*net.TCPConn) (netip.AddrPort, error) { <-sent; return l.to(), nil })
	fatal.If(l, write(l.dial(), hello))
	close(sent)
}

// TestLargeHellos: a large hello has its place until it is passed on, since it takes memory until then; one that is not large has none.
func TestLargeHellos(t *testing.T) {
	l := newLab(t, bounds(100, 100, 100, 5))
	accepts := make(chan struct{})
	accept := sync.OnceFunc(func() { close(accepts) })
	t.Cleanup(accept)
	l.judge.onDialling(func(netip.AddrPort, netip.AddrPort) error { <-accepts; return nil })
	for range 5 {
		fatal.If(t, write(l.dial(), sized(maxHello)))
	}
	fatal.Await(t, "all are waited for", func() bool { return l.Stats().Hellos == 5 })
	l.arrive(sized(maxHello))
	d := l.denial()
	diff.Equal(t, ReasonLimit, d.Reason)
	diff.Equal(t, "connections of the pod that wait for a ClientHello", d.Detail)
	l.arrive(helloFor("good.test"))
	fatal.Await(t, "a hello that is not large has room", func() bool { return l.Stats().Checked == 6 })
	accept()
	for range 6 {
		l.accepted()
	}
	fatal.Await(t, "the places are free", func() bool { return l.Stats().Hellos == 0 })
}

// TestFaults: a fault ends one connection, and takes no share of its pod for ever.
func TestFaults(t *testing.T) {
	l := newLab(t, bounds(100, 2, 100, 2))
	for range 3 {
		c := l.dial()
		fatal.Await(t, "it waits", func() bool { return l.Stats().Hellos == 1 })
		l.judge.change(func(j *judge) { j.fault = "hello" })
		fatal.If(t, write(c, helloFor("good.test")))
		if !isReset(c) {
			t.Error("no reset")
		}
		fatal.Await(t, "its share is free", func() bool { s := l.Stats(); return s.Connections == 0 && s.Hellos == 0 })
		l.judge.change(func(j *judge) { j.fault = "" })
	}
	c, s := l.answered()
	l.judge.change(func(j *judge) { j.fault = "good.test" })
	l.Recheck()
	if !isReset(c) || !isReset(s) {
		t.Error("a connection that could not be judged stays")
	}
	diff.Equal(t, 4, len(l.faults))
}

// TestBoundsOfAll: the bounds of all pods.
func TestBoundsOfAll(t *testing.T) {
	for what, limits := range map[string]corefile.RelayLimits{"connections of all pods": bounds(2, 2, 9, 9), "connections of all pods that wait for a ClientHello": bounds(9, 9, 2, 2)} {
		l := newLab(t, limits)
		l.dial()
		l.dial()
		fatal.Await(t, "both are open", func() bool { return l.Stats().Connections == 2 })
		l.refused(neighbour)
		d := l.denial()
		diff.Equal(t, what, d.Detail)
		diff.Equal(t, podB, d.Pod)
	}
}

// TestSharesOfDestinations: a pod's and the node's connections to one destination, also while their ports wait.
func TestSharesOfDestinations(t *testing.T) {
	s := newShares(bounds(1<<20, 1<<20, 1<<20, 1<<20))
	of := func(pod int) key {
		return key{policy.PodRef{Name: string(rune('a' + pod))}, netipAddrPort("192.0.2.1:443")}
	}
	for range perDestination {
		diff.Equal(t, "", s.take(of(0)))
	}
	diff.Equal(t, "connections of the pod to the destination", s.take(of(0)))
	s.release(of(0), true)
	diff.Equal(t, "connections of the pod to the destination", s.take(of(0)), "a port waits")
	s.release(of(0), false)
	diff.Equal(t, "", s.take(of(0)))
	for pod := 1; pod < maxPorts/perDestination; pod++ {
		for range perDestination {
			diff.Equal(t, "", s.take(of(pod)))
		}
	}
	diff.Equal(t, "connections of all pods to the destination", s.take(of(20)))
	other := of(20)
	other.to = netipAddrPort("192.0.2.2:443")
	diff.Equal(t, "", s.take(other))
}

// TestBuffers: what the kernel keeps for a pod that reads nothing is bounded, with however many connections.
func TestBuffers(t *testing.T) {
	s, all := newShares(corefile.DefaultRelayLimits), 0
	for i := range corefile.DefaultRelayLimits.ConnectionsPerPod {
		k := key{podA, netipAddrPort(fmt.Sprintf("192.0.2.%d:443", i%200))}
		diff.Equal(t, "", s.take(k))
		all += 3 * s.buffer(podA) // the kernel's overhead doubles both buffers of a direction
	}
	if all > 256<<20 {
		t.Errorf("one direction takes %d MiB", all>>20)
	}
	diff.Equal(t, maxBuffer, s.buffer(podB))

	l := newLab(t, corefile.DefaultRelayLimits)
	for range 300 {
		l.pair()
	}
	c, server := l.answered()
	_ = server.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	fatal.If(t, c.SetReadBuffer(1))
	fatal.If(t, server.SetWriteBuffer(1))
	sent := 0
	for block := make([]byte, 16<<10); ; {
		n, err := server.Write(block)
		if sent += n; err != nil {
			break
		}
	}
	if sent > 2<<20 {
		t.Errorf("%d KiB are on the way", sent>>10)
	}
}

// TestFlood: a pod that floods in each way costs its neighbour no connection, and no wait that it would notice.
func TestFlood(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	var over atomic.Bool
	var wg sync.WaitGroup
	for _, send := range [][]byte{nil, helloFor("evil.test"), helloFor("good.test"), helloFor("good.test")[:100], []byte("GET / HTTP/1.1\r\n")} {
		wg.Go(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.1.1")}}
			var open []*net.TCPConn
			for ; !over.Load(); time.Sleep(time.Millisecond) {
				c, err := d.Dial("tcp", l.at.String())
				if err != nil {
					continue
				}
				_ = write(c.(*net.TCPConn), send)
				if open = append(open, c.(*net.TCPConn)); len(open) > 2000 {
					reset(open[0])
					open = open[1:]
				}
			}
			for _, c := range open {
				reset(c)
			}
		})
	}
	limited := 0
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for !over.Load() {
			select {
			case d := <-l.denied:
				if d.Reason == ReasonLimit && d.Pod == podA {
					limited++
				} else if d.Pod != podA {
					t.Errorf("the neighbour: %+v", d)
				}
			case <-time.After(time.Millisecond):
			}
		}
	}()
	time.Sleep(200 * time.Millisecond)
	worst := time.Duration(0)
	for range 50 {
		begin := time.Now()
		c := l.dial(neighbour)
		fatal.If(t, write(c, helloFor("other.test")))
		fatal.If(t, l.answerTo(c))
		worst = max(worst, time.Since(begin))
		reset(c)
	}
	over.Store(true)
	wg.Wait()
	<-drained
	t.Log("the neighbour waited at most", worst, "and", limited, "connections were over a bound")
	if limited == 0 || worst > time.Second {
		t.Error(limited, worst)
	}
}

// answerTo has the destination answer each of its connections, until a client got an answer.
func (l *lab) answerTo(c *net.TCPConn) error {
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	for {
		select {
		case err := <-got:
			return err
		case s := <-l.taken:
			_ = write(s, answer)
			l.Cleanup(func() { reset(s) })
		}
	}
}
