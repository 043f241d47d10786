package upstream

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// newSocket is a socket to an upstream that says nothing, with everything it counts.
func newSocket(t testing.TB) (*udpSocket, *Counters) {
	t.Helper()
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	pool := new(Pool)
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), pool)
	t.Cleanup(func() { u.close(); _ = pc.Close() })
	return u.sockets.opened(t), &pool.stats
}

// opened opens one more socket.
func (p *socketPool) opened(t testing.TB) *udpSocket {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.open()
	fatal.If(t, err)
	return s
}

// put makes a query wait on the socket, without a packet.
func (s *udpSocket) put(t testing.TB, qname string) *asked {
	t.Helper()
	a := newAsked(t, s.pool.u, qname)
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.draining {
		t.Fatal("it takes no query")
	}
	s.add(&a.exchange, 0, a.query)
	return a
}

// is returns the state of the socket.
func (s *udpSocket) is() (draining, closed bool, waiting int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.draining, s.closed, len(s.waiting)
}

// over lets the time of a query be over, and sweeps.
func (s *udpSocket) over(a *asked) {
	s.pool.mu.Lock()
	a.until = 0
	s.pool.mu.Unlock()
	s.pool.sweep(s.pool.u.now())
}

func TestSocketAcceptsMatchingAnswers(t *testing.T) {
	s, stats := newSocket(t)
	one, two := s.put(t, "one.test"), s.put(t, "two.test")
	for i, wrong := range [][]byte{
		nil,
		one.reply(t, nil)[:wire.HeaderBytes],
		one.reply(t, func(r *dns.Msg) { r.Question[0].Name = "two.test." }),
		one.reply(t, func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS }),
		one.reply(t, func(r *dns.Msg) { r.Response = false }),
		one.reply(t, nil, "one.test. 60 IN A 192.0.2.1")[:40],
		one.reply(t, func(r *dns.Msg) { r.Id = two.id() }),
	} {
		s.take(wrong, s.pool.u.now())
		if one.ended() || two.ended() || stats.WrongReplies.Load() != uint64(i+1) {
			t.Fatalf("packet %d was taken, or not counted (%d)", i, stats.WrongReplies.Load())
		}
	}
	s.take(two.reply(t, func(r *dns.Msg) { r.Question[0].Name = "TWO.test." }, "two.test. 60 IN A 192.0.2.2"), s.pool.u.now())
	if one.ended() {
		t.Error("the answer to one ended the other")
	}
	if m, err := two.wait(); err != nil || m.Answer[0].(*dns.A).A.String() != "192.0.2.2" {
		t.Errorf("%v, %v", m, err)
	}
	if _, _, waiting := s.is(); waiting != 1 {
		t.Errorf("%d under way", waiting)
	}
}

// TestIDsOfASocket: none is used twice within its life, whatever else is under way, and
// after all its uses it takes no more and closes with the last.
func TestIDsOfASocket(t *testing.T) {
	s, _ := newSocket(t)
	seen := map[uint16]bool{}
	var last *asked
	up := 0 // ids greater than the previous one: half of the cases
	before := uint16(0)
	for range socketUses {
		a := s.put(t, "www.example.org")
		id := a.id()
		if seen[id] {
			t.Fatalf("id %d is used twice", id)
		}
		if id > before {
			up++
		}
		seen[id], before = true, id
		if last != nil {
			s.take(last.reply(t, nil), s.pool.u.now())
			if !last.ended() {
				t.Fatal("an honest reply was not taken")
			}
		}
		last = a
	}
	if up < socketUses*4/10 || up > socketUses*6/10 {
		t.Errorf("%d of %d ids are greater than the one before", up, socketUses)
	}
	if draining, closed, _ := s.is(); !draining || closed {
		t.Error("it takes more than its uses, or is closed with a query under way")
	}
	s.take(last.reply(t, nil), s.pool.u.now())
	if _, closed, _ := s.is(); !closed {
		t.Error("it stays open after the last")
	}
}

func TestSocketDrainsByAge(t *testing.T) {
	s, _ := newSocket(t)
	a := s.put(t, "www.example.org")
	next := s.pool.sweep(s.opened + socketAge - 1)
	if draining, _, _ := s.is(); draining || next != s.opened+socketAge {
		t.Errorf("draining %v, next sweep at %v", draining, next)
	}
	s.pool.sweep(s.opened + socketAge)
	if draining, closed, _ := s.is(); !draining || closed {
		t.Errorf("draining %v, closed %v with a query under way", draining, closed)
	}
	s.take(a.reply(t, nil), s.pool.u.now())
	if _, closed, _ := s.is(); !closed || !a.ended() {
		t.Error("it is not closed with the last answer")
	}
}

// TestWrongRepliesRetireASocket: after too many wrong replies the port is retired, and its
// queries continue over TCP. Late and duplicate replies are no guesses.
func TestWrongRepliesRetireASocket(t *testing.T) {
	s, stats := newSocket(t)
	answered, gaveUp, waits := s.put(t, "one.test"), s.put(t, "two.test"), s.put(t, "three.test")
	one, two := answered.reply(t, nil), gaveUp.reply(t, nil)
	s.take(one, s.pool.u.now())
	s.over(gaveUp)
	if !gaveUp.ended() || !errors.Is(gaveUp.err, os.ErrDeadlineExceeded) {
		t.Fatalf("its time is over, and it waits (%v)", gaveUp.err)
	}
	for range 10 * maxWrong {
		s.take(one, s.pool.u.now())
		s.take(two, s.pool.u.now())
	}
	if s.wrong != 0 || waits.ended() {
		t.Fatalf("%d guesses were counted", s.wrong)
	}
	guess := slices.Clone(one)
	sent := 0
	for id := range 1 << 16 {
		binary.BigEndian.PutUint16(guess, uint16(id))
		if s.used[id/64]&(1<<(id%64)) == 0 {
			s.take(guess, s.pool.u.now())
			if sent++; sent == maxWrong-1 && waits.ended() || sent == maxWrong {
				break
			}
		}
	}
	if _, closed, _ := s.is(); sent != maxWrong || !waits.ended() || !errors.Is(waits.err, errManyWrong) || !closed {
		t.Errorf("after %d guesses: %v, closed %v", sent, waits.err, closed)
	}
	diff.Equal(t, uint64(20*maxWrong+sent), stats.WrongReplies.Load(), "wrong replies counted")
}

// TestManyWrongForOneQuery: a query that gets wrong replies with its id continues over
// TCP alone; its neighbours keep waiting.
func TestManyWrongForOneQuery(t *testing.T) {
	s, _ := newSocket(t)
	a, neighbour := s.put(t, "one.test"), s.put(t, "two.test")
	unreadable := a.reply(t, nil, "one.test. 60 IN A 192.0.2.1")[:40]
	for i := range maxWrong {
		if a.ended() {
			t.Fatalf("ended after %d", i)
		}
		s.take(unreadable, s.pool.u.now())
	}
	draining, _, waiting := s.is()
	if !a.ended() || !errors.Is(a.err, errManyWrong) || neighbour.ended() || draining {
		t.Errorf("%v, the neighbour ended %v, the socket drains %v", a.err, neighbour.ended(), draining)
	}
	diff.Equal(t, 1, waiting, "under way")
}

// TestRefusedEndsAll: one closed port ends every query on the socket at once.
func TestRefusedEndsAll(t *testing.T) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), new(Pool))
	defer u.close()
	_ = pc.Close()
	s := u.sockets.opened(t)
	one, two := s.put(t, "one.test"), s.put(t, "two.test")
	s.write(two.query)
	for _, a := range []*asked{one, two} {
		if _, err := a.wait(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v", err)
		}
	}
	fatal.Await(t, "a refused socket stays open", func() bool { _, closed, _ := s.is(); return closed })
}

// TestRefusalOfAnEarlierPacket: the kernel tells the next writer, and every query on the
// socket ends.
func TestRefusalOfAnEarlierPacket(t *testing.T) {
	s, _ := newSocket(t)
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	dialled, err := net.DialUDP("udp", nil, pc.LocalAddr().(*net.UDPAddr))
	fatal.If(t, err)
	c, err := mmsg.NewConn(dialled)
	fatal.If(t, err)
	defer c.Close()
	_ = pc.Close()
	s = &udpSocket{pool: s.pool, conn: c, waiting: map[uint16]*exchange{}} // without a reader
	one, two := s.put(t, "one.test"), s.put(t, "two.test")
	s.write(one.query)
	s.write(two.query)
	for _, a := range []*asked{one, two} {
		if !a.ended() || !errors.Is(a.err, syscall.ECONNREFUSED) {
			t.Errorf("ended %v: %v", a.ended(), a.err)
		}
	}
}

// TestRetransmit: whichever of the two sockets has the answer first, the query has it
// once, and the other answer is no guess. A failure of the second socket fails nothing.
func TestRetransmit(t *testing.T) {
	for _, how := range []string{"first", "second", "second fails"} {
		s, _ := newSocket(t)
		a := s.put(t, "www.example.org")
		p := s.pool
		p.mu.Lock()
		a.retransmit = 0
		p.mu.Unlock()
		p.sweep(p.u.now())
		draining, _, _ := s.is()
		if len(p.sockets) != 2 || !draining || len(p.sockets[1].waiting) != 1 {
			t.Fatalf("%d sockets, draining %v", len(p.sockets), draining)
		}
		other := p.sockets[1]
		first, second := a.reply(t, nil), replyTo(t, a.sends[1].query, nil)
		switch how {
		case "second":
			other.take(second, p.u.now())
			s.take(first, p.u.now())
		case "second fails":
			other.fail(syscall.ECONNREFUSED)
			s.take(first, p.u.now())
		default:
			s.take(first, p.u.now())
			other.take(second, p.u.now())
		}
		if msg, err := a.wait(); err != nil || msg == nil || a.ended() {
			t.Errorf("%s: %v, %v", how, msg, err)
		}
		_, closed, _ := s.is()
		if _, _, waiting := other.is(); !closed || waiting != 0 || s.wrong+other.wrong != 0 {
			t.Errorf("%s: closed %v, %d under way on the second", how, closed, waiting)
		}
	}
}

// TestSocketsOfAnUpstreamThatLeftClose with their queries, that of a retransmit too.
func TestSocketsOfAnUpstreamThatLeftClose(t *testing.T) {
	s, _ := newSocket(t)
	a := s.put(t, "one.test")
	p := s.pool
	p.close(never)
	p.mu.Lock()
	a.retransmit = 0
	p.mu.Unlock()
	p.sweep(p.u.now())
	diff.MustEqual(t, 2, len(p.sockets), "sockets")
	s.over(a)
	diff.Equal(t, 0, p.count(), "sockets are left")
}

// TestUnreadableAfterARetransmit: the query waits on, on the socket that is still open,
// and its time ends it.
func TestUnreadableAfterARetransmit(t *testing.T) {
	s, _ := newSocket(t)
	a := s.put(t, "one.test")
	p := s.pool
	p.mu.Lock()
	a.retransmit = 0
	p.mu.Unlock()
	p.sweep(p.u.now())
	s.take(a.reply(t, nil, "one.test. 60 IN A 192.0.2.1")[:40], p.u.now())
	if _, closed, _ := s.is(); !closed || a.ended() {
		t.Fatalf("the first socket is closed: %v; the query has ended: %v (%v)", closed, a.ended(), a.err)
	}
	p.sockets[0].over(a)
	if !a.ended() || !errors.Is(a.err, os.ErrDeadlineExceeded) {
		t.Errorf("ended %v: %v", a.ended(), a.err)
	}
}

// FuzzSocket: whatever comes, a query gets a message only from a packet that answers it,
// and all others wait.
func FuzzSocket(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte("\x00\x01\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03one\x04test\x00\x00\x01\x00\x01"), uint8(1))
	f.Add([]byte("\x00\x01\x80\x01\x00\x00\x00\x00\x00\x00\x00\x00"), uint8(0))
	open, _ := newSocket(f)
	f.Fuzz(func(t *testing.T, packet []byte, n uint8) {
		s := &udpSocket{pool: open.pool, conn: open.conn, waiting: map[uint16]*exchange{}}
		var all []*asked
		for i := range int(n%8) + 1 {
			all = append(all, s.put(t, []string{"one.test", "two.test", "www.example.org", "."}[i%4]))
		}
		if len(packet) > 1 && packet[0]%2 == 0 { // an id that is under way
			copy(packet, all[int(packet[1])%len(all)].query[:2])
		}
		if len(packet) > PacketBytes {
			packet = packet[:PacketBytes]
		}
		var want *asked
		for _, a := range all {
			if read(a.query, packet, a.end) != nil {
				want = a
			}
		}
		s.take(packet, s.pool.u.now())
		wait := len(all)
		for _, a := range all {
			if a.ended() != (a == want) || a.ended() && a.msg == nil {
				t.Fatalf("ended %v, want %v; message %v, error %v", a.ended(), a == want, a.msg, a.err)
			}
			if a.ended() {
				wait--
			}
		}
		diff.MustEqual(t, wait, len(s.waiting), "waiting")
	})
}

// TestPortsAreDrawnAtRandom: the ports of one upstream's sockets are not sequential.
func TestPortsAreDrawnAtRandom(t *testing.T) {
	s, _ := newSocket(t)
	var ports []int
	for range 64 {
		s := s.pool.opened(t)
		ports = append(ports, s.conn.LocalAddr().(*net.UDPAddr).Port)
		defer s.fail(net.ErrClosed)
	}
	rtt := 0
	for i := range ports[1:] {
		if d := ports[i+1] - ports[i]; d > -64 && d < 64 {
			rtt++
		}
	}
	if rtt > 5 { // of 28,232 ports less than one in 200 is so rtt
		t.Errorf("%d of 63 ports are beside the one before: %v", rtt, ports)
	}
}
