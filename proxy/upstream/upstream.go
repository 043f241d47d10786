package upstream

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// lastAnswer is how long the answer of an upstream that left still counts. Its queries
// are asked elsewhere then.
const lastAnswer = 100 * time.Millisecond

// upstream is one resolver that is asked.
type upstream struct {
	addr    netip.AddrPort
	pool    *Pool
	stats   *Counters // of the pool
	created time.Time
	sockets socketPool
	conns   tcpPool
	clock   clock
	// silentTCP is the time until which it is not asked over TCP, a time.Duration.
	silentTCP atomic.Int64
	health
	here  context.Context // until it leaves
	leave context.CancelFunc
}

func newUpstream(addr netip.AddrPort, p *Pool) *upstream {
	here, leave := context.WithCancel(context.Background())
	u := &upstream{addr: addr, pool: p, stats: &p.stats, created: time.Now(), here: here, leave: leave}
	u.sockets.u, u.conns.u, u.conns.waiting = u, u, map[*exchange]context.CancelCauseFunc{}
	u.clock.at.Store(int64(never))
	u.heard.Store(-1)
	u.edns.Store(-1)
	return u
}

// close is for an upstream that left: its queries end soon.
func (u *upstream) close() {
	u.leave()
	last := u.now() + lastAnswer
	u.sockets.close(last)
	u.conns.close(last)
}

// gone tells whether the upstream has left.
func (u *upstream) gone() bool { return u.here.Err() != nil }

// parse returns the message of a reply that answers its query, nil if it cannot be
// read. A reply that was cut, by its sender or by the buffer, is a truncated message
// without records.
func parse(reply []byte, cut bool) *dns.Msg {
	m := new(dns.Msg)
	switch {
	case len(reply) == wire.HeaderBytes: // a bare FORMERR, see wire.Answers
		m.Response, m.Rcode = true, dns.RcodeFormatError
	case cut || reply[2]&0x02 != 0:
		m.Truncated = true
	case m.Unpack(reply) != nil:
		return nil
	}
	return m
}
