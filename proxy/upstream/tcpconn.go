package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// streamMessage is how long a message that has begun may take to arrive, and
	// queries to be taken.
	streamMessage = 2 * time.Second
	// streamDial is how long a connection may take to be made.
	streamDial = 3 * time.Second
	// streamLate is how many answers a connection may owe to queries that gave up.
	streamLate = 64
)

var errMalformed = errors.New("the reply over TCP does not answer the query")

// stream is one TCP connection and the queries that are under way on it, also while
// it is being made.
type stream struct {
	u      *upstream
	ctx    context.Context // of making the connection
	cancel context.CancelFunc

	mu      sync.Mutex
	work    sync.Cond // out has something, or it is over
	conn    net.Conn  // nil until it is made
	waiting map[uint16]*pending
	late    map[uint16]bool // ids of queries that gave up
	out     []byte          // queries that are not written yet
	heard   time.Duration   // the last answer
	idle    time.Duration   // since when nothing is under way
	taken   int             // queries so far
	retired bool            // takes no query any more
	over    bool            // and is closed
}

func newStream(u *upstream) *stream {
	st := &stream{u: u, waiting: map[uint16]*pending{}, late: map[uint16]bool{}, heard: -1}
	st.work.L = &st.mu
	st.ctx, st.cancel = context.WithTimeout(u.here, streamDial)
	return st
}

// room is how many more queries the connection takes; not ok if it is retired.
func (st *stream) room() (most int, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.retired {
		return 0, false
	}
	return streamRoom - len(st.waiting), true
}

// add takes a query, if there is room.
func (st *stream) add(p *pending) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.retired || len(st.waiting) >= streamRoom {
		return false
	}
	st.taken++
	id := dns.Id()
	for st.waiting[id] != nil || st.late[id] {
		id = dns.Id()
	}
	binary.BigEndian.PutUint16(p.query, id)
	st.waiting[id] = p
	st.out = binary.BigEndian.AppendUint16(st.out, uint16(len(p.query)))
	st.out = append(st.out, p.query...)
	st.work.Signal()
	st.u.wake(min(p.doubt, p.until))
	return true
}

// run makes the connection and writes queries until it is over.
func (st *stream) run() {
	defer st.u.streams.remove(st)
	defer st.cancel()
	var d net.Dialer
	c, err := d.DialContext(st.ctx, "tcp", st.u.addr.String())
	if err != nil {
		st.fail(err, false)
		return
	}
	defer c.Close()
	st.mu.Lock()
	st.conn = c
	st.mu.Unlock()
	read := make(chan struct{})
	go func() { defer close(read); st.read(c) }()
	for {
		batch := st.next()
		if batch == nil {
			break
		}
		_ = c.SetWriteDeadline(time.Now().Add(streamMessage))
		if _, err := c.Write(batch); err != nil {
			st.fail(err, true)
		}
	}
	_ = c.Close()
	<-read
}

// next waits for queries to write; nil when the connection is over.
func (st *stream) next() []byte {
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.out) == 0 && !st.over {
		st.work.Wait()
	}
	if st.over {
		return nil
	}
	batch := st.out
	st.out = nil
	return batch
}

// read hands the answers out.
func (st *stream) read(c net.Conn) {
	r := bufio.NewReaderSize(c, PacketBytes)
	var body bytes.Buffer
	for {
		if err := readMessage(c, r, &body); err != nil {
			st.fail(err, !errors.Is(err, errMalformed))
			return
		}
		if !st.take(body.Bytes()) {
			st.fail(errMalformed, false)
			return
		}
		if body.Cap() > 4*PacketBytes {
			body = bytes.Buffer{}
		}
	}
}

// readMessage reads one message. Its length alone makes nobody keep room for it.
func readMessage(c net.Conn, r *bufio.Reader, body *bytes.Buffer) error {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < wire.HeaderBytes {
		return errMalformed
	}
	if r.Buffered() < n {
		_ = c.SetReadDeadline(time.Now().Add(streamMessage))
		defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	}
	body.Reset()
	if _, err := io.CopyN(body, r, int64(n)); err != nil {
		return err
	}
	return nil
}

// take gives a message to its query; false if it is nobody's.
func (st *stream) take(reply []byte) bool {
	id := binary.BigEndian.Uint16(reply)
	now := st.u.now()
	st.mu.Lock()
	p := st.waiting[id]
	if p == nil {
		defer st.mu.Unlock()
		late := st.late[id]
		delete(st.late, id)
		if !late {
			st.u.stats.WrongReplies.Add(1)
		}
		return late
	}
	st.remove(id, now)
	st.heard = now
	st.mayEnd()
	st.mu.Unlock()
	if wire.Answers(p.query, reply, p.end) {
		if m := st.u.parse(reply, false); m != nil && !m.Truncated {
			st.u.answered(now, now-p.began)
			p.answer(m, nil)
			return true
		}
	}
	st.u.stats.WrongReplies.Add(1)
	p.fail(errMalformed)
	return true
}

// remove takes a query out of those that wait; the caller holds mu.
func (st *stream) remove(id uint16, now time.Duration) {
	delete(st.waiting, id)
	if len(st.waiting) == 0 {
		st.idle = now
		st.u.wake(now + streamIdle)
	}
}

// retire lets the connection take no more queries. It closes with the last.
func (st *stream) retire() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.retired = true
	st.mayEnd()
}

// mayEnd ends the connection if it is done; the caller holds mu.
func (st *stream) mayEnd() {
	if !st.retired || len(st.waiting) > 0 || st.over {
		return
	}
	st.over = true
	st.cancel()
	if st.conn != nil {
		_ = st.conn.SetDeadline(time.Unix(1, 0)) // run closes it
	}
	st.work.Signal()
}

// fail ends the connection with all its queries. Those that were lost with one that
// had others may be asked again: a server may close it after any answer.
func (st *stream) fail(err error, lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.retired = true
	for id, p := range st.waiting {
		delete(st.waiting, id)
		p.lost = lost && st.taken > 1
		p.fail(err)
	}
	st.mayEnd()
}

// moveOn is as for lines.
func (st *stream) moveOn(fails int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for id, p := range st.waiting {
		if p.down(fails) {
			st.remove(id, st.u.now())
			st.retired = true
			p.fail(errDown)
		}
	}
	st.mayEnd()
}

// hurry retires the connection and lets no query wait for longer than until last.
func (st *stream) hurry(last time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.waiting {
		p.until = min(p.until, last)
	}
	st.retired = true
	st.mayEnd()
	st.u.wake(last)
}

// sweep ends the queries whose time is over, and the connection where it is idle or
// has heard nothing. It returns when to come again.
func (st *stream) sweep(now time.Duration) (next time.Duration) {
	next = never
	st.mu.Lock()
	defer st.mu.Unlock()
	for id, p := range st.waiting {
		if now >= p.doubt {
			p.doubt = never
			if st.u.heard.Load() < int64(p.began) {
				st.u.suspect(p.zone)
			}
		}
		if now < p.until {
			next = min(next, p.doubt, p.until)
			continue
		}
		st.remove(id, now)
		st.late[id] = true
		if st.heard < p.began || len(st.late) > streamLate {
			st.retired = true
		}
		p.fail(os.ErrDeadlineExceeded)
	}
	if len(st.waiting) == 0 && !st.over {
		if next = st.idle + streamIdle; now >= next {
			st.retired, next = true, never
		}
	}
	st.mayEnd()
	return next
}
