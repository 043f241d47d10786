package upstream

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// How long a line lives. RFC 5452 counts what a forger who sees nothing must
// guess: a port (28,232 of them on Linux), an id (65,536) and the question. The id
// is drawn anew for each query, and one question is under way once, so many
// queries on a port make no guess likelier; a port that was found out is worth the
// guesses that it takes until wrongMost ends it (16 of 65,536), or until its uses
// or its age do. A port of its own for each query would be one more thing to
// guess, and one more entry for conntrack to keep, for 120 s after the last packet:
// 600,000 of them at 5,000 queries a second, and so about 150, and one for each
// socketAge that a line lives.
const (
	lineUses = 4096
	lineAge  = 10 * time.Second
)

// wrongMost is how many replies a line hears whose id is nobody's, and a query
// those that bear its id and do not answer it. Who sends more is guessing, and is
// not given the time for it: the queries go on over TCP, which cannot be guessed.
const wrongMost = 16

var errManyWrong = errors.New("too many replies did not answer the query")

// line is one connected socket and the queries that are under way on it.
type line struct {
	u     *upstream
	conn  *net.UDPConn
	raw   syscall.RawConn // conn
	born  time.Duration
	heard atomic.Int64 // the moment of its last answer, a time.Duration
	// For those who look for room, without the lock.
	room    atomic.Int32 // lineRoom less what is under way
	retired atomic.Bool  // takes no query any more
	shut    atomic.Bool  // and is closed

	mu      sync.Mutex
	waiting map[uint16]*pending
	under   int                  // those that wait, and one that is being read
	used    [1 << 16 / 64]uint64 // ids, a bit each
	uses    int
	wrong   int
	random  [32]uint16 // ids that nobody can guess
	drawn   int        // of those
}

// add takes a query if fewer than most are under way, and draws its id.
func (l *line) add(p *pending, most int) bool {
	l.mu.Lock()
	if l.retired.Load() || l.under >= most {
		l.mu.Unlock()
		return false
	}
	id := l.draw()
	binary.BigEndian.PutUint16(p.query, id)
	at := min(p.doubt, p.until)
	l.waiting[id] = p
	l.enter()
	l.uses++
	if l.uses >= lineUses {
		l.retire()
	}
	l.mu.Unlock()
	l.u.wake(at)
	return true
}

// draw returns an id that this line has not used; the caller holds mu. At most one
// in sixteen is used, so that it is as hard to guess as any.
func (l *line) draw() uint16 {
	for {
		i := l.drawn % len(l.random)
		if i == 0 {
			var b [2 * len(l.random)]byte
			_, _ = rand.Read(b[:]) // never fails: see its documentation
			for i := range l.random {
				l.random[i] = binary.NativeEndian.Uint16(b[2*i:])
			}
		}
		l.drawn++
		id := l.random[i]
		if bit := uint64(1) << (id % 64); l.used[id/64]&bit == 0 {
			l.used[id/64] |= bit
			return id
		}
	}
}

// enter and leave count what is under way; the caller holds mu.
func (l *line) enter() {
	l.under++
	l.room.Store(int32(lineRoom - l.under))
}

func (l *line) leave() {
	l.under--
	l.room.Store(int32(lineRoom - l.under))
}

// claim takes a query out of those that wait, nil if it is not among them.
func (l *line) claim(id uint16) *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.waiting[id]
	if p != nil {
		delete(l.waiting, id)
		l.leave()
		l.mayClose()
	}
	return p
}

// write sends a query that was added. What went wrong may be the news of an earlier
// packet, and so is everybody's.
func (l *line) write(query []byte) {
	if _, err := l.conn.Write(query); err != nil {
		l.Unsent(query, err)
	}
}

// Raw implements mmsg.Socket.
func (l *line) Raw() syscall.RawConn { return l.raw }

// Unsent is for a query that the kernel did not take.
func (l *line) Unsent(query []byte, err error) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		l.fail(err)
	default:
		l.retire()
		if p := l.claim(binary.BigEndian.Uint16(query)); p != nil {
			p.fail(err)
		}
	}
}

// read hands the replies out until the line is closed or refused.
func (l *line) read() {
	err := mmsg.Receive(l.conn, func(b *mmsg.ReceiveBatch) bool {
		now := l.u.now()
		for i := 0; i < b.Len() && !l.shut.Load(); i++ {
			l.take(b.Packet(i), now)
		}
		return !l.shut.Load()
	})
	l.fail(err)
	_ = l.conn.Close()
}

// take finds the query that a packet answers. It keeps nothing of the packet.
func (l *line) take(packet []byte, now time.Duration) {
	var id uint16
	var p *pending
	l.mu.Lock()
	if len(packet) >= wire.HeaderBytes {
		id = binary.BigEndian.Uint16(packet)
		p = l.waiting[id]
	}
	if p == nil || !wire.Answers(p.query, packet, p.end) {
		end := l.mistaken(id, p, packet)
		l.mu.Unlock()
		if end {
			l.fail(errManyWrong)
		}
		return
	}
	delete(l.waiting, id) // it is this goroutine's; what is under way stays so
	l.mu.Unlock()
	var m *dns.Msg
	if p.to == nil {
		m = l.u.parse(packet, len(packet) == PacketBytes)
	}
	l.mu.Lock()
	if m == nil && p.to == nil {
		l.u.stats.WrongReplies.Add(1)
		l.waitOn(id, p)
		l.mu.Unlock()
		return
	}
	l.leave()
	l.mayClose()
	l.mu.Unlock()
	l.heard.Store(int64(now))
	l.u.answered(now, now-p.began)
	p.answer(m, packet)
}

// mistaken counts a wrong reply, to the query whose id it bears or to the line. It
// tells whether those are too many for the line; the caller holds mu.
func (l *line) mistaken(id uint16, p *pending, packet []byte) (end bool) {
	l.u.stats.WrongReplies.Add(1)
	if p != nil {
		delete(l.waiting, id)
		l.waitOn(id, p)
		return false
	}
	if len(packet) >= wire.HeaderBytes && l.used[id/64]&(1<<(id%64)) != 0 {
		return false // late, or twice
	}
	l.wrong++
	return l.wrong >= wrongMost
}

// waitOn makes a query wait past a wrong reply, unless there were too many; the
// caller holds mu and has taken it out of those that wait.
func (l *line) waitOn(id uint16, p *pending) {
	if p.wrong++; p.wrong < wrongMost && !l.shut.Load() {
		l.waiting[id] = p
		return
	}
	l.leave()
	l.mayClose()
	p.fail(errManyWrong)
}

// retire lets the line take no more queries. It closes with the last.
func (l *line) retire() {
	if !l.retired.Swap(true) {
		l.u.wake(l.u.now()) // the sweep closes it, if nothing is under way
	}
}

// mayClose closes the line if it is done; the caller holds mu.
func (l *line) mayClose() {
	if l.retired.Load() && l.under == 0 && !l.shut.Swap(true) {
		// The reader is within the socket's read, where Close would wait for it.
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// fail ends the line with all its queries.
func (l *line) fail(err error) {
	l.retired.Store(true)
	l.endAll(err, func(*pending) bool { return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mayClose()
}

// endAll ends those of the queries that are to.
func (l *line) endAll(err error, which func(*pending) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.waiting {
		if which(p) {
			delete(l.waiting, id)
			l.leave()
			p.fail(err)
		}
	}
	l.mayClose()
}

// hurry lets no query wait for longer than until last.
func (l *line) hurry(last time.Duration) {
	l.mu.Lock()
	for _, p := range l.waiting {
		p.until = min(p.until, last)
	}
	l.mu.Unlock()
	l.u.wake(last)
}

// doubt is a query that has waited for doubtAfter on a line that heard nothing
// meanwhile, copied from its pending.
type doubt struct {
	l            *line
	id           uint16
	query        []byte
	end          int
	began, until time.Duration
	zone         attempt
}

// sweep ends the queries whose time is over, and the line when it is old. It
// returns when to come again, and the queries that are to be doubted now.
func (l *line) sweep(now time.Duration) (next time.Duration, doubts []doubt) {
	next = l.born + lineAge
	silentSince := never
	l.mu.Lock()
	if now >= next {
		l.retired.Store(true)
		next = never
	}
	for id, p := range l.waiting {
		if now >= p.until {
			delete(l.waiting, id)
			l.leave()
			if l.heard.Load() < int64(p.began) && p.first == nil {
				silentSince = min(silentSince, p.began)
				l.retired.Store(true)
			}
			p.fail(os.ErrDeadlineExceeded)
			continue
		}
		if now >= p.doubt {
			p.doubt = p.until
			if l.heard.Load() < int64(p.began) {
				query := append([]byte(nil), p.query...)
				doubts = append(doubts, doubt{l, id, query, p.end, p.began, p.until, p.zone})
			}
		}
		next = min(next, p.doubt, p.until)
	}
	l.mayClose()
	l.mu.Unlock()
	if silentSince != never {
		l.u.lines.silent(silentSince)
	}
	return next, doubts
}
