package upstream

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// How long a socket takes queries. RFC 5452 counts what a forger who sees nothing must
// guess: a port (28,232 of them on Linux), an id (65,536) and the question. The id is
// random for each query, and one question is in flight once, so many queries on a port
// make no guess likelier. A port that was guessed is usable until maxWrong ends it (16 of
// 65,536), or its uses or its age do. A port for each query would be one more thing to
// guess, and one more entry in conntrack for 120 s after the last packet: 600,000 of them
// at 5,000 queries a second; with reuse it is about 150, and one for each socketAge.
const (
	socketUses = 4096
	socketAge  = 10 * time.Second
)

// udpSocket is one connected socket and the table of the ids that are under way on it.
// The lock of its pool guards all of it.
type udpSocket struct {
	pool     *socketPool
	conn     *mmsg.Conn
	opened   time.Duration
	heard    time.Duration // the last reply to a query
	waiting  map[uint16]*exchange
	draining bool                 // takes no query any more, and closes with the last
	closed   bool                 // the reader ends
	used     [1 << 16 / 64]uint64 // ids, a bit each
	uses     int
	wrong    int
	random   [32]uint16 // ids that cannot be guessed
	drawn    int        // of those
}

// open connects a socket: the kernel draws its port at random and passes on only packets
// of the upstream's address.
func (p *socketPool) open() (*udpSocket, error) {
	dialled, err := p.u.pool.Dialer().Dial("udp", p.u.addr.String())
	if err != nil {
		return nil, err
	}
	c := dialled.(*net.UDPConn)
	_ = c.SetReadBuffer(receiveBuffer) // the kernel's default serves as well
	conn, err := mmsg.NewConn(c)
	if err != nil {
		return nil, err
	}
	s := &udpSocket{pool: p, conn: conn, opened: p.u.now(), heard: -1, waiting: map[uint16]*exchange{}, draining: p.closing}
	p.sockets = append(p.sockets, s)
	go s.read()
	return s, nil
}

// add draws an id for the query of an exchange; the caller holds the lock.
func (s *udpSocket) add(e *exchange, i int, query []byte) {
	id := s.draw()
	binary.BigEndian.PutUint16(query, id)
	e.sends[i] = send{s, id, query}
	s.waiting[id] = e
	if s.uses++; s.uses >= socketUses {
		s.draining = true
	}
}

// draw returns an id that this socket has not used. At most one in sixteen is used, so
// that it is as hard to guess as any.
func (s *udpSocket) draw() uint16 {
	for {
		i := s.drawn % len(s.random)
		if i == 0 {
			var b [2 * len(s.random)]byte
			_, _ = rand.Read(b[:]) // never fails: see its documentation
			for i := range s.random {
				s.random[i] = binary.NativeEndian.Uint16(b[2*i:])
			}
		}
		s.drawn++
		id := s.random[i]
		if bit := uint64(1) << (id % 64); s.used[id/64]&bit == 0 {
			s.used[id/64] |= bit
			return id
		}
	}
}

// write sends a query that was added.
func (s *udpSocket) write(query []byte) {
	if err := s.conn.Send(query); err != nil {
		s.Unsent(query, err)
	}
}

// Raw implements mmsg.Socket.
func (s *udpSocket) Raw() syscall.RawConn { return s.conn }

// Unsent implements mmsg.Socket. A refusal may be the news of an earlier packet, and so
// ends every query on the socket.
func (s *udpSocket) Unsent(query []byte, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		s.fail(err)
		return
	}
	s.pool.mu.Lock()
	var failures []failure
	if e := s.waiting[binary.BigEndian.Uint16(query)]; e != nil {
		failures = s.drop(e, err)
	}
	s.draining = true
	s.closeIfDone()
	s.pool.mu.Unlock()
	tell(failures)
}

// read hands the replies out until the socket is closed or refused.
func (s *udpSocket) read() {
	err := mmsg.Receive(s.conn, func(b *mmsg.ReceiveBatch) (open bool) {
		now := s.pool.u.now()
		open = true
		for i := 0; i < b.Len() && open; i++ {
			open = s.take(b.Packet(i), now)
		}
		return open
	})
	s.fail(err)
	_ = s.conn.Close()
}

// take gives a packet to the query that it answers, and tells whether the socket is still
// open. It keeps nothing of the packet.
func (s *udpSocket) take(packet []byte, now time.Duration) (open bool) {
	s.pool.mu.Lock()
	e, failures := s.match(packet, now)
	open = !s.closed
	s.pool.mu.Unlock()
	tell(failures)
	if e != nil {
		s.pool.u.answered(e.query, now, now-e.began)
		if !e.to.replied(packet) {
			s.pool.unread(e)
		}
	}
	return open
}

// match removes the exchange that a packet answers from the tables and returns it. A
// wrong reply counts against the query whose id it bears, or against the socket; the
// caller holds the lock and reports the failures.
func (s *udpSocket) match(packet []byte, now time.Duration) (*exchange, []failure) {
	var id uint16
	var e *exchange
	if len(packet) >= wire.HeaderBytes {
		id = binary.BigEndian.Uint16(packet)
		e = s.waiting[id]
	}
	if e != nil && wire.Answers(e.queryOn(s), packet, e.end) {
		s.heard = now
		s.pool.remove(e)
		return e, nil
	}
	s.pool.u.stats.WrongReplies.Add(1)
	switch {
	case e != nil:
		if e.wrong++; e.wrong >= maxWrong {
			s.pool.remove(e)
			return nil, []failure{{e, errManyWrong}}
		}
	case len(packet) >= wire.HeaderBytes && s.used[id/64]&(1<<(id%64)) != 0: // late, or twice
	default:
		if s.wrong++; s.wrong >= maxWrong {
			return nil, s.end(errManyWrong)
		}
	}
	return nil, nil
}

// queryOn returns the query as it was sent on the socket.
func (e *exchange) queryOn(s *udpSocket) []byte {
	if e.sends[1].socket == s {
		return e.sends[1].query
	}
	return e.query
}

// drop takes an exchange off the socket. That fails it, unless the socket has only its
// retransmit; the caller holds the lock and reports the failures.
func (s *udpSocket) drop(e *exchange, err error) []failure {
	if e.sends[0].socket == s {
		s.pool.remove(e)
		return []failure{{e, err}}
	}
	delete(s.waiting, e.sends[1].id)
	e.sends[1] = send{}
	return nil
}

// end closes the socket with all its queries; the caller holds the lock and reports the
// failures.
func (s *udpSocket) end(err error) (failures []failure) {
	s.draining = true
	for _, e := range s.waiting {
		failures = append(failures, s.drop(e, err)...)
	}
	s.closeIfDone()
	return failures
}

// fail is end for a caller without the lock.
func (s *udpSocket) fail(err error) {
	s.pool.mu.Lock()
	failures := s.end(err)
	s.pool.mu.Unlock()
	tell(failures)
}

// closeIfDone closes the socket if nothing is under way on it and nothing will be.
func (s *udpSocket) closeIfDone() {
	if !s.draining || len(s.waiting) > 0 || s.closed {
		return
	}
	s.closed = true
	// The reader is within the socket's read, where Close would wait for it.
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}
