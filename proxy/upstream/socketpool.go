package upstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lineRoom is how many queries are under way on one line before another is
	// opened: so many replies of the usual size fit into the buffer that the
	// kernel gives a socket (212,992 bytes, of which a small reply takes 768 to 2,304).
	lineRoom = 64
	// linesMost bounds the lines of one upstream. Beyond it they carry more each.
	linesMost = 128
)

var errLines = errors.New("too many of its sockets wait for answers")

// trunk is the lines that carry the UDP queries of one upstream: as few as there is
// room on, more while many queries are under way.
type trunk struct {
	u    *upstream
	mu   sync.Mutex              // of changing the list
	list atomic.Pointer[[]*line] // oldest first; not changed
}

// send gives a query a line and sends it there. However it fails, it is told to
// whoever waits for the query.
func (m *trunk) send(p *pending, alone bool) {
	query := p.query // p is another's, or nobody's, from when it is placed
	l, err := m.place(p, alone)
	if err != nil {
		p.fail(err)
		return
	}
	m.hurryGone(l)
	l.write(query)
}

// write is send with a batch.
func (m *trunk) write(p *pending, with *Batch) {
	query := p.query
	l, err := m.place(p, false)
	if err != nil {
		p.fail(err)
		return
	}
	m.hurryGone(l)
	with.packets.Add(l, query)
}

// hurryGone is for a query whose upstream leaves: close may not have seen its line.
func (m *trunk) hurryGone(l *line) {
	if m.u.gone() {
		l.hurry(m.u.now() + lastAnswer)
		l.retire()
	}
}

// place finds room for the query on a line, or opens one. One for a query alone is
// used by no other.
func (m *trunk) place(p *pending, alone bool) (*line, error) {
	if !alone {
		if l := fitting(m.all(), p); l != nil {
			return l, nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.prune()
	if !alone {
		if l := fitting(list, p); l != nil {
			return l, nil
		}
	}
	if len(list) >= linesMost {
		return crowded(list, p)
	}
	l, err := m.open()
	if err != nil {
		return nil, err
	}
	l.add(p, lineRoom)
	if alone {
		l.retire()
	}
	list = append(list, l)
	m.list.Store(&list)
	return l, nil
}

// fitting puts the query onto the first line that has room, so that few are in use.
func fitting(list []*line, p *pending) *line {
	for _, l := range list {
		if l.room.Load() > 0 && l.add(p, lineRoom) {
			return l
		}
	}
	return nil
}

// crowded puts the query onto the emptiest line although all are full.
func crowded(list []*line, p *pending) (*line, error) {
	var least *line
	for _, l := range list {
		if !l.retired.Load() && (least == nil || l.room.Load() > least.room.Load()) {
			least = l
		}
	}
	if least == nil || !least.add(p, lineUses) {
		return nil, errLines
	}
	return least, nil
}

func (m *trunk) all() []*line {
	if list := m.list.Load(); list != nil {
		return *list
	}
	return nil
}

// prune returns a list of its own without the lines that are closed; the caller
// holds mu.
func (m *trunk) prune() []*line {
	old := m.all()
	list := make([]*line, 0, len(old)+1)
	for _, l := range old {
		if !l.shut.Load() {
			list = append(list, l)
		}
	}
	m.list.Store(&list)
	return list
}

// open connects a socket: the kernel draws its port at random and passes on only
// what the upstream's address sends.
func (m *trunk) open() (*line, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(m.u.addr))
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	l := &line{u: m.u, conn: c, raw: raw, born: m.u.now(), waiting: map[uint16]*pending{}}
	l.heard.Store(-1)
	l.room.Store(lineRoom)
	go l.read()
	return l, nil
}

// sweep ends what is over at the moment now and returns when there is more to do.
func (m *trunk) sweep(now time.Duration) (next time.Duration) {
	next = never
	var doubts []doubt
	closed := false
	for _, l := range m.all() {
		at, found := l.sweep(now)
		next = min(next, at)
		doubts = append(doubts, found...)
		closed = closed || l.shut.Load()
	}
	if closed {
		m.mu.Lock()
		m.prune()
		m.mu.Unlock()
	}
	for _, d := range doubts {
		m.doubted(d)
	}
	return next
}

// doubted is for a query that waits while nobody was answered: not on its line,
// which may be tied to one dead endpoint of a Service, or by the whole upstream.
func (m *trunk) doubted(d doubt) {
	if m.u.heard.Load() < int64(d.began) {
		m.u.suspect(d.zone)
	}
	d.l.retire()
	if len(m.all()) > linesMost/2 {
		return // its load is what ails it
	}
	m.u.stats.Queries.Add(1)
	p := newPending(d.query, d.end)
	p.first = &original{d.l, d.id}
	p.began, p.until = m.u.now(), d.until
	p.doubt = p.until
	m.send(p, false)
}

// silent is for a query that got no answer: no older line is used again that heard
// nothing since it began. Where the upstream's address is a Service's, they may
// all be tied to the endpoint that died.
func (m *trunk) silent(since time.Duration) {
	for _, l := range m.all() {
		if l.born < since && l.heard.Load() < int64(since) {
			l.retire()
		}
	}
}

// moveOn ends the queries whose zones take the upstream for down after so many
// probes in a row.
func (m *trunk) moveOn(fails int) {
	for _, l := range m.all() {
		l.endAll(errDown, func(p *pending) bool { return p.down(fails) })
	}
}

// close gives what is under way its last moment.
func (m *trunk) close(last time.Duration) {
	for _, l := range m.all() {
		l.hurry(last)
		l.retire()
	}
}
