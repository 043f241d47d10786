package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// line is a connection between a pod and a server, most often in the world, both ends of which
// the test has in its hands.
type line struct {
	name           string
	client, server *end
	conn           net.Conn // the client's socket
	local, remote  net.Addr
}

// end is one end of a line, with all that it received so far.
type end struct {
	write func([]byte) (int, error)

	mu    sync.Mutex
	heard bytes.Buffer
}

// say sends a word, which need not arrive.
func (e *end) say(word string) { _, _ = e.write([]byte(word + ";")) }

// hears keeps what read brings until the socket is closed or its connection has
// ended; a datagram's refusal is no end.
func (e *end) hears(read func([]byte) (int, error)) {
	buf := make([]byte, 2048)
	for {
		n, err := read(buf)
		e.mu.Lock()
		e.heard.Write(buf[:n])
		e.mu.Unlock()
		var of *net.OpError
		if err != nil && (errors.Is(err, net.ErrClosed) || !errors.As(err, &of) || of.Net == "tcp") {
			return
		}
	}
}

func (e *end) has(word string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Contains(e.heard.Bytes(), []byte(word+";"))
}

// line opens a connection from a pod to a server of its own in the world, and tries it.
func (s *stage) line(pod, network string, to netip.Addr) *line {
	s.t.Helper()
	return s.lineTo(pod, network, s.World, to)
}

// lineTo is line to a server on a host.
func (s *stage) lineTo(pod, network string, at *lab.Host, to netip.Addr) *line {
	s.t.Helper()
	l := &line{name: fmt.Sprintf("%s's %s to %s", pod, network, to), client: &end{}, server: &end{}}
	client, server := s.served(pod, network, at, to, l)
	s.t.Cleanup(func() { client.Close(); server() })
	l.conn, l.client.write, l.local, l.remote = client, client.Write, client.LocalAddr(), client.RemoteAddr()
	go l.client.hears(client.Read)
	s.podsReceived("at first", []*line{l})
	s.goesOn("at first", l)
	return l
}

// served opens the server, on a port of its own, and the pod's socket.
func (s *stage) served(pod, network string, host *lab.Host, to netip.Addr, l *line) (client net.Conn, end func()) {
	s.t.Helper()
	anyPort := netip.AddrPortFrom(to, 0).String()
	if network == "udp" {
		at, err := host.ListenPacket("udp", anyPort)
		fatal.If(s.t, err)
		var mu sync.Mutex
		var peer net.Addr
		go l.server.hears(func(b []byte) (int, error) {
			n, from, err := at.ReadFrom(b)
			mu.Lock()
			defer mu.Unlock()
			if peer = from; err != nil {
				peer = nil
			}
			return n, err
		})
		l.server.write = func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return at.WriteTo(b, peer)
		}
		return s.dial(pod, at.LocalAddr()), func() { at.Close() }
	}
	at, err := host.Listen(anyPort)
	fatal.If(s.t, err)
	client = s.dial(pod, at.Addr())
	c, err := at.Accept()
	fatal.If(s.t, err)
	l.server.write = c.Write
	go l.server.hears(c.Read)
	return client, func() { c.Close(); at.Close() }
}

func (s *stage) dial(pod string, to net.Addr) net.Conn {
	s.t.Helper()
	c, err := s.Pod(pod).Dial(to.Network(), to.String(), lab.Limit)
	if err != nil {
		s.t.Fatalf("pod %s to %s %s: %v", pod, to.Network(), to, err)
	}
	return c
}

// goesOn asserts that each end of lines receives the other's data, the server's first: a
// pod that sends first could restore a cut connection.
func (s *stage) goesOn(when string, lines ...*line) {
	s.t.Helper()
	s.serversReceived(when, lines)
	s.podsReceived(when, lines)
}

func (s *stage) serversReceived(when string, lines []*line) {
	s.t.Helper()
	word := s.word()
	for _, l := range lines {
		l.server.say(word)
	}
	s.heard("the pod", when, func(l *line) bool { return l.client.has(word) }, lines)
}

func (s *stage) podsReceived(when string, lines []*line) {
	s.t.Helper()
	word := s.word()
	for _, l := range lines {
		l.client.say(word)
	}
	s.heard("the server", when, func(l *line) bool { return l.server.has(word) }, lines)
}

// heard waits until data arrived on every line.
func (s *stage) heard(who, when string, arrived func(*line) bool, lines []*line) {
	s.t.Helper()
	until := time.Now().Add(lab.Limit)
	for _, l := range lines {
		for !arrived(l) {
			if time.Now().After(until) {
				s.t.Errorf("%s: %s hears nothing more on %s", when, who, l.name)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// serverNext asserts that servers' data on lines do not arrive, nor the pods' data then.
// Data on other lines after it, which arrive, bound the wait.
func (s *stage) serverNext(when string, cut, others []*line) {
	s.t.Helper()
	s.silent(when, cut, others, func(l *line) (from, to *end) { return l.server, l.client })
	s.silent(when, cut, others, func(l *line) (from, to *end) { return l.client, l.server })
}

// podNext is serverNext with the pods first.
func (s *stage) podNext(when string, cut, others []*line) {
	s.t.Helper()
	s.silent(when, cut, others, func(l *line) (from, to *end) { return l.client, l.server })
	s.silent(when, cut, others, func(l *line) (from, to *end) { return l.server, l.client })
}

func (s *stage) silent(when string, cut, others []*line, ends func(*line) (from, to *end)) {
	s.t.Helper()
	word := s.word()
	for _, l := range cut {
		from, _ := ends(l)
		from.say(word)
	}
	s.goesOn(when, others...)
	for _, l := range cut {
		if _, to := ends(l); to.has(word) {
			s.t.Errorf("%s: what was said on %s arrived", when, l.name)
		}
	}
}

// word is another each time.
func (s *stage) word() string { return fmt.Sprintf("word %d", time.Now().UnixNano()) }

// vigil is what became of connections to allowed and to denied addresses, one to each
// every 10 ms.
type vigil struct {
	over                            chan struct{}
	probes                          sync.WaitGroup
	allowed, failed, denied, passed atomic.Int64
}

// vigilance is how long a connection is tried that may be denied for a moment: less
// than the second after which TCP sends a lost packet again.
const vigilance = 900 * time.Millisecond

// watchfully begins a vigil of a pod's.
func (s *stage) watchfully(pod string, allowed, denied []string) *vigil {
	v := &vigil{over: make(chan struct{})}
	probe := func(to string, wrong func(netip.AddrPort) bool, tries, bad *atomic.Int64) {
		at := netip.MustParseAddrPort(to)
		v.probes.Go(func() {
			for { // once in any case, however soon it is over
				tries.Add(1)
				if wrong(at) {
					bad.Add(1)
				}
				select {
				case <-v.over:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	for _, to := range allowed {
		probe(to, func(at netip.AddrPort) bool { return s.Pod(pod).ProbeFirst(at) != lab.Answered }, &v.allowed, &v.failed)
	}
	for _, to := range denied {
		probe(to, func(at netip.AddrPort) bool { return s.Pod(pod).Probe("tcp", at) == lab.Answered }, &v.denied, &v.passed)
	}
	return v
}

// end ends it.
func (v *vigil) end() {
	close(v.over)
	v.probes.Wait()
}

// verdict ends it, and returns what went wrong.
func (v *vigil) verdict() error {
	v.end()
	if v.failed.Load() > 0 || v.passed.Load() > 0 {
		return fmt.Errorf("%d of %d allowed connections failed and %d of %d denied ones passed", v.failed.Load(), v.allowed.Load(), v.passed.Load(), v.denied.Load())
	}
	if v.allowed.Load()+v.denied.Load() == 0 {
		return errors.New("no probe was made")
	}
	return nil
}

// vigil begins one in which nothing may go wrong; the returned function ends it.
func (s *stage) vigil(pod string, allowed, denied []string) (stop func(when string)) {
	v := s.watchfully(pod, allowed, denied)
	return func(when string) {
		s.t.Helper()
		if err := v.verdict(); err != nil {
			s.t.Errorf("%s: %v", when, err)
		}
		s.t.Logf("%s: %d allowed and %d denied connections", when, v.allowed.Load(), v.denied.Load())
	}
}
