package upstream

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/upstream/upstreamtest"
	"github.com/namegate/namegate/proxy/wire"
)

// newLine is a line to an upstream that says nothing, with everything it counts.
func newLine(t testing.TB) (*line, *counters) {
	t.Helper()
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	pool := new(Pool)
	stats := &pool.stats
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), pool)
	l, err := u.lines.open()
	if err != nil {
		t.Fatal(err)
	}
	list := []*line{l}
	u.lines.list.Store(&list)
	t.Cleanup(func() { u.close(); _ = pc.Close() })
	return l, stats
}

// put makes a query wait on the line, without a packet.
func (l *line) put(t testing.TB, qname string) *pending {
	t.Helper()
	a := askFor(t, qname)
	p := l.u.newPending(a.Pack(0), a.QuestionEnd(), time.Now().Add(time.Minute), attempt{})
	if !l.add(p, lineUses) {
		t.Fatal("it takes no query")
	}
	return p
}

func (p *pending) id() uint16 { return binary.BigEndian.Uint16(p.query) }

// reply is the honest reply to what is pending.
func (p *pending) reply(t testing.TB, edit func(*dns.Msg), rrs ...string) []byte {
	t.Helper()
	q := new(dns.Msg)
	if err := q.Unpack(p.query); err != nil {
		t.Fatal(err)
	}
	return upstreamtest.Says(q, edit, rrs...)
}

func (p *pending) ended() bool { return len(p.done) > 0 }

func TestLineTakesWhatAnswers(t *testing.T) {
	l, stats := newLine(t)
	one, two := l.put(t, "one.test"), l.put(t, "two.test")
	for i, wrong := range [][]byte{
		nil,
		one.reply(t, nil)[:wire.HeaderBytes],
		one.reply(t, func(r *dns.Msg) { r.Question[0].Name = "two.test." }),
		one.reply(t, func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS }),
		one.reply(t, func(r *dns.Msg) { r.Response = false }),
		one.reply(t, nil, "one.test. 60 IN A 192.0.2.1")[:40],
		one.reply(t, func(r *dns.Msg) { r.Id = two.id() }),
	} {
		l.take(wrong, l.u.now())
		if one.ended() || two.ended() || stats.WrongReplies.Load() != uint64(i+1) {
			t.Fatalf("packet %d was taken, or not counted (%d)", i, stats.WrongReplies.Load())
		}
	}
	l.take(two.reply(t, func(r *dns.Msg) { r.Question[0].Name = "TWO.test." }, "two.test. 60 IN A 192.0.2.2"), l.u.now())
	if one.ended() {
		t.Error("the answer to one ended the other")
	}
	if m, _, err := two.wait(); err != nil || m.Answer[0].(*dns.A).A.String() != "192.0.2.2" {
		t.Errorf("%v, %v", m, err)
	}
	if l.under != 1 || l.room.Load() != lineRoom-1 {
		t.Errorf("%d under way, room for %d", l.under, l.room.Load())
	}
}

// TestIDsOfALine: none is used twice within its life, whatever else is under way,
// and after all its uses it takes no more and closes with the last.
func TestIDsOfALine(t *testing.T) {
	l, _ := newLine(t)
	seen := map[uint16]bool{}
	var last *pending
	up := 0 // ids that are greater than the one before: in half of the cases
	before := uint16(0)
	for range lineUses {
		p := l.put(t, "www.example.org")
		id := p.id()
		if seen[id] {
			t.Fatalf("id %d is used twice", id)
		}
		if id > before {
			up++
		}
		seen[id], before = true, id
		if last != nil {
			l.take(last.reply(t, nil), l.u.now())
			if !last.ended() {
				t.Fatal("an honest reply was not taken")
			}
		}
		last = p
	}
	if up < lineUses*4/10 || up > lineUses*6/10 {
		t.Errorf("%d of %d ids are greater than the one before", up, lineUses)
	}
	a := askFor(t, "www.example.org")
	if l.add(newPending(a.Pack(0), a.QuestionEnd()), lineUses) || l.shut.Load() {
		t.Error("it takes more than its uses, or is closed with a query under way")
	}
	l.take(last.reply(t, nil), l.u.now())
	if !l.shut.Load() {
		t.Error("it stays open after the last")
	}
}

func TestLineRetiresByAge(t *testing.T) {
	l, _ := newLine(t)
	p := l.put(t, "www.example.org")
	if next, _ := l.sweep(l.born + lineAge - 1); l.retired.Load() || next != l.born+lineAge {
		t.Errorf("retired %v, next sweep at %v", l.retired.Load(), next)
	}
	l.sweep(l.born + lineAge)
	if !l.retired.Load() || l.shut.Load() {
		t.Errorf("retired %v, closed %v with a query under way", l.retired.Load(), l.shut.Load())
	}
	l.take(p.reply(t, nil), l.u.now())
	if !l.shut.Load() || !p.ended() {
		t.Error("it is not closed with the last answer")
	}
}

// TestGuessesEndALine: after so many the port is given up, and everyone on it asks
// over TCP. Late and doubled replies are no guesses.
func TestGuessesEndALine(t *testing.T) {
	l, stats := newLine(t)
	answered, gaveUp, waits := l.put(t, "one.test"), l.put(t, "two.test"), l.put(t, "three.test")
	one, two := answered.reply(t, nil), gaveUp.reply(t, nil)
	l.take(one, l.u.now())
	l.mu.Lock()
	gaveUp.until = 0
	l.mu.Unlock()
	l.sweep(l.u.now())
	if !gaveUp.ended() || !errors.Is(gaveUp.err, os.ErrDeadlineExceeded) {
		t.Fatalf("its time is over, and it waits (%v)", gaveUp.err)
	}
	l.retired.Store(false) // that it heard nothing does not matter here
	for range 10 * wrongMost {
		l.take(one, l.u.now())
		l.take(two, l.u.now())
	}
	if l.wrong != 0 || waits.ended() {
		t.Fatalf("%d guesses were counted", l.wrong)
	}
	guess := append([]byte{}, one...)
	sent := 0
	for id := range 1 << 16 {
		binary.BigEndian.PutUint16(guess, uint16(id))
		if l.used[id/64]&(1<<(id%64)) == 0 {
			l.take(guess, l.u.now())
			if sent++; sent == wrongMost-1 && waits.ended() || sent == wrongMost {
				break
			}
		}
	}
	if sent != wrongMost || !waits.ended() || !errors.Is(waits.err, errManyWrong) || !l.shut.Load() {
		t.Errorf("after %d guesses: %v, closed %v", sent, waits.err, l.shut.Load())
	}
	if n := stats.WrongReplies.Load(); n != uint64(20*wrongMost+sent) {
		t.Errorf("%d wrong replies counted", n)
	}
}

// TestManyWrongForOneQuery: who gets wrong replies that bear its id goes to TCP
// alone; its neighbours wait on.
func TestManyWrongForOneQuery(t *testing.T) {
	l, _ := newLine(t)
	p, neighbour := l.put(t, "one.test"), l.put(t, "two.test")
	unreadable := p.reply(t, nil, "one.test. 60 IN A 192.0.2.1")[:40]
	for i := range wrongMost {
		if p.ended() {
			t.Fatalf("ended after %d", i)
		}
		l.take(unreadable, l.u.now())
	}
	if !p.ended() || !errors.Is(p.err, errManyWrong) || neighbour.ended() || l.retired.Load() {
		t.Errorf("%v, the neighbour ended %v, the line retired %v", p.err, neighbour.ended(), l.retired.Load())
	}
	if l.under != 1 {
		t.Errorf("%d under way", l.under)
	}
}

// TestRefusedIsToldToAll: one closed port ends every query on the line at once.
func TestRefusedIsToldToAll(t *testing.T) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	u := newUpstream(pc.LocalAddr().(*net.UDPAddr).AddrPort(), new(Pool))
	defer u.close()
	_ = pc.Close()
	l, err := u.lines.open()
	if err != nil {
		t.Fatal(err)
	}
	one, two := l.put(t, "one.test"), l.put(t, "two.test")
	l.write(two.query)
	for _, p := range []*pending{one, two} {
		if _, _, err := p.wait(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v", err)
		}
	}
	await(t, "a refused line stays open", l.shut.Load)
}

// TestRefusalOfAnEarlierPacket: whoever is told by the kernel, all are.
func TestRefusalOfAnEarlierPacket(t *testing.T) {
	l, _ := newLine(t)
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", nil, pc.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = pc.Close()
	l = &line{u: l.u, conn: c, waiting: map[uint16]*pending{}} // nobody reads
	one, two := l.put(t, "one.test"), l.put(t, "two.test")
	l.write(one.query)
	l.write(two.query)
	for _, p := range []*pending{one, two} {
		if !p.ended() || !errors.Is(p.err, syscall.ECONNREFUSED) {
			t.Errorf("ended %v: %v", p.ended(), p.err)
		}
	}
}

// TestRepeatedQuery: whichever of the two lines has the answer first, the query has
// it once.
func TestRepeatedQuery(t *testing.T) {
	for _, second := range []bool{false, true} {
		l, _ := newLine(t)
		p := l.put(t, "www.example.org")
		m := &l.u.lines
		l.u.heard.Store(int64(p.began)) // by others: it is not probed
		m.doubted(doubt{l, p.id(), append([]byte{}, p.query...), p.end, p.began, p.until, attempt{maxFails: 2}})
		all := m.all()
		if len(all) != 2 || !l.retired.Load() || len(all[1].waiting) != 1 {
			t.Fatalf("%d lines, retired %v", len(all), l.retired.Load())
		}
		var again *pending
		for _, again = range all[1].waiting {
		}
		first, other := p.reply(t, nil), again.reply(t, nil)
		if second {
			all[1].take(other, l.u.now())
			l.take(first, l.u.now())
		} else {
			l.take(first, l.u.now())
			all[1].take(other, l.u.now())
		}
		if msg, _, err := p.wait(); err != nil || msg == nil {
			t.Errorf("second %v: %v, %v", second, msg, err)
		}
		if !l.shut.Load() || all[1].under != 0 || l.wrong+all[1].wrong != 0 {
			t.Errorf("second %v: closed %v, %d under way on the second", second, l.shut.Load(), all[1].under)
		}
	}
}

// FuzzLine: whatever comes, a query gets a message only from a packet that answers
// it, and what is under way is counted right.
func FuzzLine(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte("\x00\x01\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03one\x04test\x00\x00\x01\x00\x01"), uint8(1))
	f.Add([]byte("\x00\x01\x80\x01\x00\x00\x00\x00\x00\x00\x00\x00"), uint8(0))
	l, _ := newLine(f)
	u := l.u
	f.Fuzz(func(t *testing.T, packet []byte, n uint8) {
		l := &line{u: u, conn: l.conn, waiting: map[uint16]*pending{}}
		var all []*pending
		for i := range int(n%8) + 1 {
			all = append(all, l.put(t, []string{"one.test", "two.test", "www.example.org", "."}[i%4]))
		}
		if len(packet) > 1 && packet[0]%2 == 0 { // an id that is under way
			copy(packet, all[int(packet[1])%len(all)].query[:2])
		}
		if len(packet) > PacketBytes {
			packet = packet[:PacketBytes]
		}
		var want *pending
		for _, p := range all {
			if read(p.query, packet, p.end) != nil {
				want = p
			}
		}
		l.take(packet, u.now())
		for _, p := range all {
			if p.ended() != (p == want) || p.ended() && p.msg == nil {
				t.Fatalf("ended %v, want %v; message %v, error %v", p.ended(), p == want, p.msg, p.err)
			}
		}
		if l.under != len(l.waiting) || l.under != len(all)-b2i(want != nil) {
			t.Fatalf("%d under way, %d wait, of %d", l.under, len(l.waiting), len(all))
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestPortsAreDrawnAtRandom: those of the lines of one upstream do not follow each
// other.
func TestPortsAreDrawnAtRandom(t *testing.T) {
	l, _ := newLine(t)
	var ports []int
	for range 64 {
		l, err := l.u.lines.open()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.conn.LocalAddr().(*net.UDPAddr).Port)
		defer l.fail(net.ErrClosed)
	}
	near := 0
	for i := range ports[1:] {
		if d := ports[i+1] - ports[i]; d > -64 && d < 64 {
			near++
		}
	}
	if near > 5 { // of 28,232 ports less than one in 200 is so near
		t.Errorf("%d of 63 ports are beside the one before: %v", near, ports)
	}
}
