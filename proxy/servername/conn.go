package servername

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// dialTimeout bounds how long a destination may take to accept.
const dialTimeout = 10 * time.Second

// keepAlive is shorter than conntrack remembers a connection that one side has ended: the pod's half is translated.
const keepAlive = 30 * time.Second

// conn is one connection: the pod's half, and the half to the destination.
type conn struct {
	r               *Relay
	client          *net.TCPConn
	source, dialled netip.AddrPort
	ctx             context.Context // ends with the connection
	cancel          context.CancelFunc
	egress          policy.Egress // the first decision
	answered        chan struct{} // closed at the server's first bytes
	retry           bool          // these are a HelloRetryRequest; set before answered is closed
	waits           bool          // it has a place of those that wait; only serve changes it
	mu              sync.Mutex    // of the fields below
	claimed         string        // the server name as the client wrote it
	name            fqdn.Name
	known           bool // name is what the connection is judged by
	server          *net.TCPConn
	over            bool
	closesFirst     bool // the server's half was ended before the server ended it
}

func newConn(r *Relay, client *net.TCPConn, to netip.AddrPort) *conn {
	c := &conn{r: r, client: client, source: addrPort(client.RemoteAddr()), dialled: to, answered: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *conn) key() key { return key{c.egress.Pod, c.dialled} }

func (c *conn) judged() (fqdn.Name, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name, c.known
}

func (c *conn) claim(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed = name
}

// judge notes by which name the connection is judged, then asks: a change between both is Recheck's.
func (c *conn) judge(name fqdn.Name) policy.Egress {
	c.mu.Lock()
	c.name, c.known = name, true
	c.mu.Unlock()
	return c.r.options.Judge.Egress(c.source.Addr(), c.dialled, name)
}

// serve relays the connection until both directions have ended.
func (c *conn) serve() {
	buffer := c.r.shares.buffer(c.egress.Pod)
	prepare(c.client, buffer)
	_ = c.client.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive})
	var h hello
	checked := c.egress.Verdict == policy.CheckFlow
	if checked && !c.check(&h) || !checked && !c.unread() {
		return
	}
	server, err := c.r.ports.dial(c.ctx, c.r.options.Judge, c.dialled)
	switch {
	case errors.Is(err, errNoPort):
		c.deny(ReasonLimit, err.Error())
		return
	case err != nil:
		c.r.counters.DialFailures.Add(1)
		c.reset()
		return
	}
	prepare(server, buffer)
	if !c.attach(server) {
		return
	}
	down := make(chan struct{})
	go func() {
		defer close(down)
		if !c.r.options.Protect("a relayed connection", func() { c.down(checked) }) {
			c.reset()
		}
	}()
	c.up(checked, &h)
	<-down
	c.drain()
}

// unread judges a connection that is copied unread once more: it is among those of Recheck only now.
func (c *conn) unread() bool {
	if e := c.judge(""); e.Verdict != policy.AllowFlow || e.Pod != c.egress.Pod {
		c.deny(ReasonPolicy, "")
		return false
	}
	c.r.counters.Unread.Add(1)
	return true
}

// check reads the hello and judges its name.
func (c *conn) check(h *hello) bool {
	name, ok := c.hear(h)
	if !ok {
		return false
	}
	if e := c.judge(name); e.Verdict != policy.CheckFlow || e.Pod != c.egress.Pod {
		c.deny(ReasonServerName, "the pod holds no grant of the address for the server name")
		return false
	}
	c.r.counters.Checked.Add(1)
	return true
}

// hear reads a hello. One that has arrived waits for nothing: many come at once after a pause of the machine.
func (c *conn) hear(h *hello) (name fqdn.Name, ok bool) {
	name, err := h.read(arrived{c.client})
	if late := errors.Is(err, errTooLate); late || err == nil && h.large() {
		if !c.waits {
			bound := c.r.shares.wait(c.egress.Pod)
			if c.waits = bound == ""; !c.waits {
				c.deny(ReasonLimit, bound)
				return "", false
			}
		}
		if late {
			_ = c.client.SetReadDeadline(time.Now().Add(c.r.options.helloTimeout))
			name, err = h.read(c.client)
			_ = c.client.SetReadDeadline(time.Time{})
		}
		if !h.large() {
			c.heard()
		}
	}
	c.claim(h.claimed)
	if err != nil {
		c.deny(ReasonServerName, err.Error())
	}
	return name, err == nil
}

// heard gives back the place of a hello, if the connection has one.
func (c *conn) heard() {
	if c.waits {
		c.waits = false
		c.r.shares.heard(c.egress.Pod)
	}
}

// up copies what the client sends. Of a checked connection the hello goes first, and all else after the server's
// first bytes: a second hello is checked too.
func (c *conn) up(checked bool, h *hello) {
	err := write(c.server, h.raw[:h.end])
	if err == nil && checked {
		err = c.second(h)
	}
	c.heard()
	if err == nil {
		err = transfer(c.server, c.client)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.reset()
		return
	}
	if info, err := tcpInfo(c.server); err == nil && info.State == tcpEstablished {
		c.mu.Lock()
		c.closesFirst = true
		c.mu.Unlock()
	}
	_ = c.server.CloseWrite()
}

// second passes on what the client sends up to the server's first bytes, and a second hello with the same name.
func (c *conn) second(h *hello) error {
	rest := bytes.Clone(h.raw[h.end:])
	if *h = (hello{}); len(rest) == 0 {
		c.heard()
	}
	if err := c.hold(len(rest) > 0); err != nil {
		return err
	}
	_ = c.client.SetReadDeadline(time.Time{})
	if !c.retry {
		return write(c.server, rest)
	}
	next := hello{raw: rest, again: true}
	name, ok := c.hear(&next)
	if ok && name != c.name {
		c.deny(ReasonServerName, "the second ClientHello has another server name")
		ok = false
	}
	if !ok {
		return net.ErrClosed
	}
	return write(c.server, next.raw)
}

// hold waits for the server's first bytes. If the client ended before, without having sent more, it returns io.EOF.
func (c *conn) hold(more bool) error {
	raw, err := c.client.SyscallConn()
	if err != nil {
		return err
	}
	var ended error
	var b [1]byte
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			return false
		case err == nil && n == 0 && !more:
			err = io.EOF
		case err == nil: // a reset is behind the data
			var v int
			if v, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); v != 0 {
				err = unix.Errno(v)
			}
		}
		ended = err
		return err != nil
	})
	if isTimeout(err) {
		<-c.answered
		return nil
	}
	return errors.Join(err, ended)
}

// down copies what the server sends. Of a checked connection it looks at the first bytes.
func (c *conn) down(checked bool) {
	var err error
	if checked {
		var first []byte
		first, err = readAnswer(c.server)
		c.retry = isRetryRequest(first)
		close(c.answered)
		_ = c.client.SetReadDeadline(time.Unix(1, 0)) // ends hold
		err = errors.Join(err, write(c.client, first))
	}
	if err == nil {
		err = transfer(c.client, c.server)
	}
	if err != nil {
		c.reset()
		return
	}
	_ = c.client.CloseWrite()
}

// drain waits until both peers have acknowledged everything: what they do not read counts as theirs until then.
func (c *conn) drain() {
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if !over {
		awaitClosed(c.server)
		awaitClosed(c.client)
	}
}

// attach adds the half to the destination, unless the connection has ended.
func (c *conn) attach(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		reset(server)
		return false
	}
	c.server = server
	return true
}

// deny resets the connection and reports it, unless it has ended.
func (c *conn) deny(why Reason, detail string) {
	if c.reset() {
		c.mu.Lock()
		claimed := c.claimed
		c.mu.Unlock()
		c.r.counters.denied[why].Add(1)
		c.r.options.Denied(Denial{Egress: c.egress, Source: c.source, Dialled: c.dialled, ServerName: claimed, Reason: why, Detail: detail})
	}
}

// reset resets both halves. It tells whether the connection was open.
func (c *conn) reset() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.over = true
	c.cancel()
	reset(c.client)
	if c.server != nil {
		reset(c.server)
	}
	return true
}

// close closes both halves. It tells whether a local port waits now that the kernel does not give to the next connection.
func (c *conn) close() (waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && c.server != nil && c.closesFirst {
		info, err := tcpInfo(c.server)
		waits = err != nil || info.Options&tcpTimestamps == 0
	}
	c.over = true
	c.cancel()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
	return waits
}
