package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	done chan struct{}
	once sync.Once
}

func newUpstream(addr netip.AddrPort, stats *counters) *upstream {
	return &upstream{addr: addr, udp: sockets{to: addr}, stats: stats, done: make(chan struct{})}
}

func (u *upstream) close() {
	u.once.Do(func() { close(u.done) })
	u.udp.close()
}

// exchange asks once: over UDP until try, and if the reply is truncated, or too
// many were wrong, over TCP until end. Replies that
// answer something else are counted and waited past. Who does not understand EDNS
// is asked again without (RFC 6891 §6.2.2).
func (u *upstream) exchange(a ask, try, end time.Time) (*dns.Msg, error) {
	m, err := u.single(a, a.wire(randomID()), try, end)
	if err == nil && m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil {
		return u.single(a, a.plainWire(randomID()), try, end)
	}
	return m, err
}

func (u *upstream) single(a ask, query []byte, try, end time.Time) (*dns.Msg, error) {
	u.stats.UpstreamQueries.Add(1)
	m, err := u.overUDP(query, a.questionEnd(), try)
	if err != nil && !errors.Is(err, errManyWrong) {
		return nil, fmt.Errorf("ask %s: %w", u.addr, err)
	}
	if err == nil && !m.Truncated {
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
