package proxy

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

// script says what an upstream sends back for a query: any number of packets,
// which over TCP get their length in front.
type script func(q *dns.Msg, tcp bool) [][]byte

// scripted is an upstream on the loopback.
type scripted struct {
	addr netip.AddrPort
	udp  atomic.Int64 // queries
	tcp  atomic.Int64
	opts atomic.Int64 // queries whose OPT advertises 1232
	stop func()       // nobody listens there any more
}

func startScript(t testing.TB, sc script) *scripted {
	t.Helper()
	pc, ln := bothPorts(t)
	u := &scripted{addr: pc.LocalAddr().(*net.UDPAddr).AddrPort()}
	u.stop = func() { _ = pc.Close(); _ = ln.Close() }
	t.Cleanup(u.stop)
	go u.serveUDP(pc, sc)
	go u.serveTCP(ln, sc)
	return u
}

// bothPorts are sockets of one port that the kernel chose: for UDP, so that TCP's
// may be taken.
func bothPorts(t testing.TB) (*net.UDPConn, *net.TCPListener) {
	t.Helper()
	var err error
	for range 20 {
		pc, udpErr := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
		if udpErr != nil {
			t.Fatal(udpErr)
		}
		var ln *net.TCPListener
		if ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(pc.LocalAddr().(*net.UDPAddr).AddrPort())); err == nil {
			return pc, ln
		}
		_ = pc.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// eachQuery hands out what arrives until the socket is closed.
func eachQuery(pc *net.UDPConn, take func(q *dns.Msg, from netip.AddrPort)) {
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

func (u *scripted) serveUDP(pc *net.UDPConn, sc script) {
	eachQuery(pc, func(q *dns.Msg, from netip.AddrPort) {
		u.udp.Add(1)
		if opt := q.IsEdns0(); opt != nil && opt.UDPSize() == wire.AdvertisedSize {
			u.opts.Add(1)
		}
		go func() {
			for _, p := range sc(q, false) {
				_, _ = pc.WriteToUDPAddrPort(p, from)
			}
		}()
	})
}

func (u *scripted) serveTCP(ln net.Listener, sc script) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			m, err := readTCP(bufio.NewReader(c))
			if err != nil {
				return
			}
			u.tcp.Add(1)
			for _, p := range sc(m, true) {
				_, _ = c.Write(frame(p))
			}
		}()
	}
}

// readTCP reads one message with its length.
func readTCP(r io.Reader) (*dns.Msg, error) {
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

// says makes the honest packet of a reply with these records, changed by edit.
func says(q *dns.Msg, edit func(*dns.Msg), rrs ...string) []byte {
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

// honest answers every question with one address.
func honest(ip string) script {
	return func(q *dns.Msg, _ bool) [][]byte {
		return [][]byte{says(q, nil, q.Question[0].Name+" 60 IN A "+ip)}
	}
}

func silent(*dns.Msg, bool) [][]byte { return nil }

// zoneOf is a root zone of these upstreams in their order, with short times.
func zoneOf(ups ...*scripted) corefile.Zone {
	z := corefile.Zone{Policy: corefile.Sequential, MaxFails: 2, Timeout: time.Second, Deadline: 20 * time.Second}
	for _, u := range ups {
		z.To = append(z.To, u.addr)
	}
	return z
}

// live makes the lab ask real sockets.
func (l *lab) live(zones ...corefile.Zone) {
	c := *l.s.setup.Load().config
	c.Zones = zones
	l.s.Configure(&c)
}
