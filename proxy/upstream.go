package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// probeEvery is how often an upstream that failed is asked whether it is back.
const probeEvery = 500 * time.Millisecond

// replyBuffer holds a UDP reply; a longer one counts as truncated.
const replyBuffer = 4096

var replyBuffers = sync.Pool{New: func() any { return new([replyBuffer]byte) }}

var (
	errMalformed = errors.New("the reply over TCP does not answer the query")
)

// upstream is one resolver that is asked. Its times are the machine's: they are
// deadlines of sockets.
type upstream struct {
	addr    netip.AddrPort
	udp     sockets
	stats   *counters
	fails   atomic.Int32 // tries in a row
	probing atomic.Bool
	done    chan struct{}
	once    sync.Once
}

func newUpstream(addr netip.AddrPort, stats *counters) *upstream {
	return &upstream{addr: addr, udp: sockets{to: addr}, stats: stats, done: make(chan struct{})}
}

func (u *upstream) close() {
	u.once.Do(func() { close(u.done) })
	u.udp.close()
}

// exchange asks once: over UDP until try, and if the reply is truncated over TCP
// until end. Replies that answer something else are counted and waited past.
func (u *upstream) exchange(a ask, try, end time.Time) (*dns.Msg, error) {
	query := a.wire(randomID())
	u.stats.UpstreamQueries.Add(1)
	m, err := u.overUDP(query, a.questionEnd(), try)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", u.addr, err)
	}
	if !m.Truncated {
		return m, nil
	}
	u.stats.UpstreamTCP.Add(1)
	m, err = u.overTCP(query, a.questionEnd(), end)
	if err != nil {
		return nil, fmt.Errorf("ask %s over TCP: %w", u.addr, err)
	}
	return m, nil
}

func (u *upstream) overUDP(query []byte, end int, deadline time.Time) (*dns.Msg, error) {
	s, err := u.udp.take()
	if err != nil {
		return nil, err
	}
	m, err := u.converse(s, query, end, deadline)
	if err != nil {
		_ = s.Close() // its late reply must not meet the next query
		return nil, err
	}
	u.udp.give(s)
	return m, nil
}

func (u *upstream) converse(s *socket, query []byte, end int, deadline time.Time) (*dns.Msg, error) {
	if err := s.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := s.Write(query); err != nil {
		return nil, err
	}
	buf := replyBuffers.Get().(*[replyBuffer]byte)
	defer replyBuffers.Put(buf)
	for {
		n, err := s.Read(buf[:])
		if err != nil {
			return nil, err
		}
		if m := read(query, buf[:n], end); m != nil {
			return m, nil
		}
		u.stats.WrongReplies.Add(1)
	}
}

// read returns the message if it answers the query, else nil. One that was cut
// off by its sender or by our buffer is a truncated message without records.
func read(query, reply []byte, end int) *dns.Msg {
	if !echoes(query, reply, end) {
		return nil
	}
	m := new(dns.Msg)
	cut := reply[2]&0x02 != 0 || len(reply) == replyBuffer
	if cut {
		m.Truncated = true
		return m
	}
	if err := m.Unpack(reply); err != nil {
		return nil
	}
	return m
}

func (u *upstream) overTCP(query []byte, end int, deadline time.Time) (*dns.Msg, error) {
	d := net.Dialer{Deadline: deadline}
	c, err := d.Dial("tcp", u.addr.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := c.Write(frame(query)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if !echoes(query, reply, end) || m.Unpack(reply) != nil || m.Truncated {
		u.stats.WrongReplies.Add(1)
		return nil, errMalformed
	}
	return m, nil
}

// frame puts the length before a message, as TCP has it (RFC 1035 §4.2.2).
func frame(msg []byte) []byte {
	b := make([]byte, 2, 2+len(msg))
	binary.BigEndian.PutUint16(b, uint16(len(msg)))
	return append(b, msg...)
}

// failed counts a try without a reply, and starts asking whether the upstream is
// back once it has had most of them in a row.
func (u *upstream) failed(most int) {
	u.stats.UpstreamFailures.Add(1)
	if n := u.fails.Add(1); most > 0 && int(n) >= most && u.probing.CompareAndSwap(false, true) {
		go u.probe()
	}
}

func (u *upstream) answered() { u.fails.Store(0) }

func (u *upstream) down(most int) bool { return most > 0 && int(u.fails.Load()) >= most }

// probe asks for the root's name servers until there is any reply.
func (u *upstream) probe() {
	defer u.probing.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	a := ask{Question: Question{Type: dns.TypeNS, Class: dns.ClassINET}, recurse: true}
	for {
		select {
		case <-u.done:
			return
		case <-tick.C:
		}
		if _, err := u.overUDP(a.wire(randomID()), a.questionEnd(), time.Now().Add(probeEvery)); err == nil {
			u.answered()
			return
		}
	}
}
