package lab

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
)

// Upstream is a resolver of the world's that behaves as it is told, badly too.
type Upstream struct {
	Addr  netip.Addr
	world *Host

	mu     sync.Mutex
	behave Behaviour
	asked  []Asked
	udp    net.PacketConn
	tcp    net.Listener
	open   map[net.Conn]bool
}

// Behaviour is what an upstream does with what reaches it. Both functions run on
// a goroutine of their own.
type Behaviour struct {
	// UDP is called with each query; nil swallows them.
	UDP func(q *Query)
	// TCP is called with each connection, which is closed at its return; nil
	// accepts connections and says nothing.
	TCP func(u *Upstream, c net.Conn)
}

// Query is a query that arrived.
type Query struct {
	*dns.Msg
	from net.Addr
	send func(wire []byte) error
}

// Asked is what an upstream remembers of a query.
type Asked struct {
	Name    string // absolute, as it was spelled
	Network string // udp or tcp
	ID      uint16
	Port    uint16 // the client's
}

// NewUpstream returns an upstream that is down.
func (l *Lab) NewUpstream(at netip.Addr, behave Behaviour) *Upstream {
	return &Upstream{Addr: at, world: l.World, behave: behave, open: map[net.Conn]bool{}}
}

// Up opens port 53. An upstream that is down is refused by the world's kernel.
func (u *Upstream) Up() error {
	at := netip.AddrPortFrom(u.Addr, 53).String()
	c, err := u.world.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	l, err := u.world.Listen(at)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	u.mu.Lock()
	u.udp, u.tcp = c, l
	u.mu.Unlock()
	go u.readUDP(c)
	go u.accept(l)
	return nil
}

// Down closes port 53 and what is connected to it.
func (u *Upstream) Down() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.udp == nil {
		return
	}
	_ = u.udp.Close()
	_ = u.tcp.Close()
	u.udp, u.tcp = nil, nil
	for c := range u.open {
		_ = c.Close()
	}
}

// Behave replaces the behaviour for what arrives from now on.
func (u *Upstream) Behave(b Behaviour) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.behave = b
}

// Asked returns the queries that arrived so far and could be read.
func (u *Upstream) Asked() []Asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Asked(nil), u.asked...)
}

// Times returns how often a name was asked for.
func (u *Upstream) Times(name string) (n int) {
	for _, a := range u.Asked() {
		if dns.CanonicalName(a.Name) == dns.CanonicalName(name) {
			n++
		}
	}
	return n
}

// note remembers a query and returns what to do with it.
func (u *Upstream) note(wire []byte, network string, from netip.AddrPort) (*dns.Msg, Behaviour) {
	m := new(dns.Msg)
	u.mu.Lock()
	defer u.mu.Unlock()
	if m.Unpack(wire) != nil || len(m.Question) != 1 {
		return nil, u.behave
	}
	u.asked = append(u.asked, Asked{Name: m.Question[0].Name, Network: network, ID: m.Id, Port: from.Port()})
	return m, u.behave
}

func (u *Upstream) readUDP(c net.PacketConn) {
	buf := make([]byte, dns.MaxMsgSize)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		m, b := u.note(buf[:n], "udp", from.(*net.UDPAddr).AddrPort())
		if m == nil || b.UDP == nil {
			continue
		}
		go b.UDP(&Query{Msg: m, from: from, send: func(wire []byte) error {
			_, err := c.WriteTo(wire, from)
			return err
		}})
	}
}

func (u *Upstream) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		serve := u.behave.TCP
		u.open[c] = true
		u.mu.Unlock()
		go func() {
			if serve == nil {
				_, _ = io.Copy(io.Discard, c)
			} else {
				serve(u, c)
			}
			_ = c.Close()
			u.mu.Lock()
			delete(u.open, c)
			u.mu.Unlock()
		}()
	}
}

// Reply sends a reply to who asked, cut to what they take where that is UDP.
func (q *Query) Reply(r *dns.Msg) error {
	if _, ok := q.from.(*net.UDPAddr); ok {
		r.Truncate(payload(q.Msg))
	}
	wire, err := r.Pack()
	if err != nil {
		return err
	}
	return q.send(wire)
}

// Honest answers over UDP and TCP, and says over UDP what fits.
func Honest(answer Answerer) Behaviour {
	reply := func(q *Query) {
		if r := answer(q.Msg); r != nil {
			_ = q.Reply(r)
		}
	}
	return Behaviour{UDP: reply, TCP: EachTCP(reply)}
}

// EachTCP lets a function answer each query on a connection, in any order.
func EachTCP(answer func(q *Query)) func(u *Upstream, c net.Conn) {
	return func(u *Upstream, c net.Conn) {
		var write sync.Mutex
		var under sync.WaitGroup
		defer under.Wait()
		send := func(wire []byte) error {
			write.Lock()
			defer write.Unlock()
			_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...))
			return err
		}
		for {
			var length [2]byte
			if _, err := io.ReadFull(c, length[:]); err != nil {
				return
			}
			wire := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(c, wire); err != nil {
				return
			}
			if m, _ := u.note(wire, "tcp", c.RemoteAddr().(*net.TCPAddr).AddrPort()); m != nil {
				under.Go(func() { answer(&Query{Msg: m, from: c.RemoteAddr(), send: send}) })
			}
		}
	}
}
