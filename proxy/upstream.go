package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// replyBuffer holds a UDP reply; a longer one counts as truncated.
const replyBuffer = 4096

var replyBuffers = sync.Pool{New: func() any { return new([replyBuffer]byte) }}

// wrongMost is how many wrong replies to one query are waited past: who sends
// more is guessing, and is not given the time for it. TCP cannot be guessed.
const wrongMost = 16

var (
	errMalformed = errors.New("the reply over TCP does not answer the query")
	errManyWrong = errors.New("too many replies did not answer the query")
)

// upstream is one resolver that is asked. Its times are the machine's: they are
// deadlines of sockets.
type upstream struct {
	addr  netip.AddrPort
	udp   sockets
	stats *counters
	health
	here  context.Context // until it leaves
	leave context.CancelFunc
}

func newUpstream(addr netip.AddrPort, stats *counters) *upstream {
	here, leave := context.WithCancel(context.Background())
	return &upstream{addr: addr, udp: sockets{to: addr}, stats: stats, here: here, leave: leave}
}

// close is for an upstream that left: what is under way there ends soon.
func (u *upstream) close() {
	u.leave()
	u.udp.close()
}

// gone tells whether the upstream has left.
func (u *upstream) gone() bool { return u.here.Err() != nil }

// attempt bounds one exchange.
type attempt struct {
	udp, tcp time.Time // when each is over
	maxFails int       // of the zone: 0 doubts nobody
}

// exchange asks once: over UDP, and if the reply is truncated, or too many were
// wrong, over TCP. Replies that answer something else are counted and waited past.
// Who does not understand EDNS is asked again without (RFC 6891 §6.2.2).
func (u *upstream) exchange(a ask, by attempt) (*dns.Msg, error) {
	m, err := u.single(a, a.wire(randomID()), by)
	if err == nil && m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil {
		return u.single(a, a.plainWire(randomID()), by)
	}
	return m, err
}

func (u *upstream) single(a ask, query []byte, by attempt) (*dns.Msg, error) {
	u.stats.UpstreamQueries.Add(1)
	m, err := u.overUDP(query, a.questionEnd(), by)
	if err != nil && !errors.Is(err, errManyWrong) {
		return nil, fmt.Errorf("ask %s: %w", u.addr, err)
	}
	if err == nil && !m.Truncated {
		return m, nil
	}
	u.stats.UpstreamTCP.Add(1)
	m, err = u.overTCP(query, a.questionEnd(), by.tcp)
	if err != nil {
		return nil, fmt.Errorf("ask %s over TCP: %w", u.addr, err)
	}
	return m, nil
}

func (u *upstream) overUDP(query []byte, end int, by attempt) (*dns.Msg, error) {
	doubt := time.Now().Add(doubtAfter)
	if by.maxFails == 0 || doubt.After(by.udp) {
		doubt = by.udp
	}
	s, err := u.udp.take(doubt)
	if err != nil {
		return nil, err
	}
	m, err := u.converse(s, query, end)
	if doubt.Before(by.udp) && errors.Is(err, os.ErrDeadlineExceeded) && u.udp.extend(s, by.udp) == nil {
		u.doubted(doubt.Add(-doubtAfter), by.maxFails)
		m, err = u.receive(s, query, end)
	}
	if err != nil {
		u.udp.drop(s)
		return nil, err
	}
	u.udp.give(s)
	return m, nil
}

func (u *upstream) converse(s *socket, query []byte, end int) (*dns.Msg, error) {
	if _, err := s.Write(query); err != nil {
		return nil, err
	}
	return u.receive(s, query, end)
}

// receive waits past what does not answer the query.
func (u *upstream) receive(s *socket, query []byte, end int) (*dns.Msg, error) {
	buf := replyBuffers.Get().(*[replyBuffer]byte)
	defer replyBuffers.Put(buf)
	for range wrongMost {
		n, err := s.Read(buf[:])
		if err != nil {
			return nil, err
		}
		if m := read(query, buf[:n], end); m != nil {
			return m, nil
		}
		u.stats.WrongReplies.Add(1)
	}
	return nil, errManyWrong
}

// read returns the message if it answers the query, else nil. One that was cut
// off by its sender or by our buffer is a truncated message without records.
func read(query, reply []byte, end int) *dns.Msg {
	m := new(dns.Msg)
	if bareFormatError(query, reply) {
		m.Response, m.Rcode = true, dns.RcodeFormatError
		return m
	}
	if !echoes(query, reply, end) {
		return nil
	}
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

// bareFormatError tells whether the reply is a header that says FORMERR and
// nothing else, as some say who do not understand EDNS.
func bareFormatError(query, reply []byte) bool {
	return len(reply) == headerBytes && reply[0] == query[0] && reply[1] == query[1] &&
		reply[2]&0x80 != 0 && reply[3]&0x0f == dns.RcodeFormatError && string(reply[4:]) == string(make([]byte, 8))
}

func (u *upstream) overTCP(query []byte, end int, deadline time.Time) (*dns.Msg, error) {
	ctx, cancel := context.WithDeadline(u.here, deadline)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", u.addr.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now().Add(lastAnswer)) })
	defer stop()
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
