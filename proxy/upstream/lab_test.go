package upstream

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// forged is the address of every lie.
const forged = "203.0.113.66"

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: policytest.Name(qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}

// patient is a zone that asks each upstream once, without probes, and waits for its answer.
func patient(ups ...*upstreamtest.Server) corefile.Zone {
	z := upstreamtest.Zone(ups...)
	z.MaxFails, z.Timeout, z.Deadline = 0, time.Minute, 2*time.Minute
	return z
}

// newZone is a zone without upstreams.
func newZone() *Zone { return &Zone{pool: new(Pool)} }

// newForward is a zone with the upstreams of its configuration, and its totals.
func newForward(t *testing.T, config corefile.Zone) (*Zone, *Counters) {
	t.Helper()
	z := newZone()
	var ups []*upstream
	for _, to := range config.To {
		u := newUpstream(to, z.pool)
		t.Cleanup(u.close)
		ups = append(ups, u)
	}
	z.set(&config, ups, nil)
	return z, &z.pool.stats
}

// resolve is Start for a test that waits.
func (z *Zone) resolve(q wire.Query) (Answer, error) {
	w := newWaiter()
	z.Start(q, w, nil)
	<-w.done
	return w.answer, w.err
}

// waiter is the Responder of a test that waits.
type waiter struct {
	done   chan struct{} // closed at the end
	answer Answer
	err    error
}

func newWaiter() *waiter { return &waiter{done: make(chan struct{})} }

func (w *waiter) Packet([]byte, netip.AddrPort) bool { return false }

func (w *waiter) Done(a Answer, err error) {
	w.answer, w.err = a, err
	close(w.done)
}

func answersWith(t *testing.T, z *Zone, ip string) {
	t.Helper()
	got, err := z.resolve(askFor(t, "www.example.org"))
	fatal.If(t, err)
	if len(got.Msg.Answer) != 1 || got.Msg.Answer[0].(*dns.A).A.String() != ip {
		t.Errorf("answer %v, want %s", got.Msg.Answer, ip)
	}
}

// read returns the message of a reply over UDP if it answers the query, else nil.
func read(query, reply []byte, end int) *dns.Msg {
	if !wire.Answers(query, reply, end) {
		return nil
	}
	return parse(reply, len(reply) == PacketBytes)
}

// exchange is a try that a test waits for.
func (u *upstream) exchange(q wire.Query, by bounds) (*dns.Msg, error) {
	o := tried{done: make(chan struct{})}
	new(try).start(u, q, by, &o, nil)
	<-o.done
	return o.msg, o.err
}

// tried is the end of a try.
type tried struct {
	done chan struct{}
	msg  *dns.Msg
	err  error
}

func (o *tried) packet([]byte) bool { return false }
func (o *tried) tried(m *dns.Msg, err error) {
	o.msg, o.err = m, err
	close(o.done)
}
func (o *tried) broken() { o.tried(nil, ErrFault) }

// asked is an exchange whose end a test looks at.
type asked struct {
	exchange
	done chan struct{}
	msg  *dns.Msg
	err  error
}

// newAsked returns an exchange that is nowhere yet.
func newAsked(t testing.TB, u *upstream, qname string) *asked {
	t.Helper()
	q, a := askFor(t, qname), &asked{done: make(chan struct{}, 1)}
	a.exchange = u.newExchange(q.Pack(0), q.QuestionEnd(), time.Now().Add(time.Minute), bounds{}, a)
	return a
}

func (a *asked) replied(packet []byte) bool {
	if a.msg = parse(packet, len(packet) == PacketBytes); a.msg == nil {
		return false
	}
	a.done <- struct{}{}
	return true
}

func (a *asked) failed(err error, _ bool) {
	a.err = err
	a.done <- struct{}{}
}

func (a *asked) ended() bool { return len(a.done) > 0 }

func (a *asked) wait() (*dns.Msg, error) {
	<-a.done
	return a.msg, a.err
}

// id returns the id that the query has on its first socket.
func (a *asked) id() uint16 { return binary.BigEndian.Uint16(a.query) }

// reply is the honest reply to the query.
func (a *asked) reply(t testing.TB, edit func(*dns.Msg), rrs ...string) []byte {
	t.Helper()
	return replyTo(t, a.query, edit, rrs...)
}

func replyTo(t testing.TB, query []byte, edit func(*dns.Msg), rrs ...string) []byte {
	t.Helper()
	q := new(dns.Msg)
	fatal.If(t, q.Unpack(query))
	return upstreamtest.Says(q, edit, rrs...)
}

// count returns how many sockets there are.
func (p *socketPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune()
	return len(p.sockets)
}

// count returns how many connections there are.
func (p *tcpPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}
