// Package upstreamtest is a resolver on the loopback for tests: it answers over UDP and
// TCP as a script says. The tests of package upstream and of the proxy ask it.
package upstreamtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// Script returns the packets that a server sends back for a query. Over TCP each gets
// its length in front.
type Script func(q *dns.Msg, tcp bool) [][]byte

// Server is a resolver on the loopback.
type Server struct {
	Addr netip.AddrPort
	// UDP and TCP count the queries, Opts the UDP queries whose OPT record advertises
	// wire.AdvertisedSize.
	UDP, TCP, Opts atomic.Int64
	// Stop closes the sockets.
	Stop func()
}

// Start runs a server until the test ends.
func Start(t testing.TB, s Script) *Server {
	t.Helper()
	pc, ln := Sockets(t)
	u := &Server{Addr: pc.LocalAddr().(*net.UDPAddr).AddrPort()}
	u.Stop = func() { _ = pc.Close(); _ = ln.Close() }
	t.Cleanup(u.Stop)
	go u.serveUDP(pc, s)
	go u.ServeTCP(ln, s)
	return u
}

// Sockets opens a UDP and a TCP socket with one port, which the kernel chooses for
// UDP: the TCP port may be in use, then the next one is tried.
func Sockets(t testing.TB) (*net.UDPConn, *net.TCPListener) {
	t.Helper()
	loopback := net.IPv4(127, 0, 0, 1)
	var err error
	for range 20 {
		pc, udpErr := net.ListenUDP("udp", &net.UDPAddr{IP: loopback})
		if udpErr != nil {
			t.Fatal(udpErr)
		}
		var ln *net.TCPListener
		if ln, err = net.ListenTCP("tcp", &net.TCPAddr{IP: loopback, Port: pc.LocalAddr().(*net.UDPAddr).Port}); err == nil {
			return pc, ln
		}
		_ = pc.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// EachQuery calls take for each query until the socket is closed.
func EachQuery(pc *net.UDPConn, take func(q *dns.Msg, from netip.AddrPort)) {
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if q := new(dns.Msg); q.Unpack(buf[:n]) == nil {
			take(q, from)
		}
	}
}

func (u *Server) serveUDP(pc *net.UDPConn, s Script) {
	EachQuery(pc, func(q *dns.Msg, from netip.AddrPort) {
		u.UDP.Add(1)
		if opt := q.IsEdns0(); opt != nil && opt.UDPSize() == wire.AdvertisedSize {
			u.Opts.Add(1)
		}
		go func() {
			for _, p := range s(q, false) {
				_, _ = pc.WriteToUDPAddrPort(p, from)
			}
		}()
	})
}

// ServeTCP answers one query on each connection until the listener is closed.
func (u *Server) ServeTCP(ln net.Listener, s Script) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			m, err := ReadTCP(bufio.NewReader(c))
			if err != nil {
				return
			}
			u.TCP.Add(1)
			for _, p := range s(m, true) {
				_, _ = c.Write(Frame(p))
			}
		}()
	}
}

// ReadTCP reads one message with its length.
func ReadTCP(r io.Reader) (*dns.Msg, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(b)
}

// Frame puts the length before a message.
func Frame(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}

// Says returns the honest reply with these records, changed by edit.
func Says(q *dns.Msg, edit func(*dns.Msg), rrs ...string) []byte {
	r := new(dns.Msg)
	r.SetReply(q)
	for _, text := range rrs {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		r.Answer = append(r.Answer, rr)
	}
	if edit != nil {
		edit(r)
	}
	wire, err := r.Pack()
	if err != nil {
		panic(err)
	}
	return wire
}

// Honest answers every question with one address.
func Honest(ip string) Script {
	return func(q *dns.Msg, _ bool) [][]byte {
		return [][]byte{Says(q, nil, q.Question[0].Name+" 60 IN A "+ip)}
	}
}

// Silent answers no question.
func Silent(*dns.Msg, bool) [][]byte { return nil }

// Rcode answers every question with a response code.
func Rcode(rcode int) Script {
	return func(q *dns.Msg, _ bool) [][]byte {
		return [][]byte{Says(q, func(r *dns.Msg) { r.Rcode = rcode })}
	}
}

// Zone is a root zone of these servers in their order, with short times.
func Zone(ups ...*Server) corefile.Zone {
	z := corefile.Zone{Policy: corefile.Sequential, MaxFails: 2, Timeout: time.Second, Deadline: 20 * time.Second}
	for _, u := range ups {
		z.To = append(z.To, u.Addr)
	}
	return z
}
