package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/cluster/echo"
)

// Answerer is the world's resolver: it returns the reply to a query, nil for
// silence.
type Answerer func(query *dns.Msg) *dns.Msg

// Outside is what runs in the world: a resolver, and echo servers on every
// address of the documentation ranges; or the echo servers of another host.
type Outside struct {
	world   *Host
	closers []io.Closer
	servers []*dns.Server

	mu     sync.Mutex
	answer Answerer
	asked  []string
	// clients counts queries by the address that they came from.
	clients map[netip.Addr]int
}

// ServeWorld starts the resolver and, on each port, a TCP and a UDP echo server.
// An echo begins with the address that the server saw as the client's.
func (l *Lab) ServeWorld(answer Answerer, ports ...int) (*Outside, error) {
	o, err := l.World.Serve(ports...)
	if err != nil {
		return nil, err
	}
	o.answer = answer
	for _, a := range []netip.Addr{Resolver4, Resolver6} {
		if err := o.serveDNS(netip.AddrPortFrom(a, 53)); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Serve starts, on each port of a host, a TCP and a UDP echo server as the world has.
func (h *Host) Serve(ports ...int) (*Outside, error) {
	o := &Outside{world: h, clients: map[netip.Addr]int{}}
	for _, p := range ports {
		if err := errors.Join(o.echoTCP(p), o.echoUDP(p)); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// ServeDNS starts a resolver of a host.
func (h *Host) ServeDNS(at netip.AddrPort, answer Answerer) (*Outside, error) {
	o := &Outside{world: h, answer: answer, clients: map[netip.Addr]int{}}
	return o, o.serveDNS(at)
}

// SetAnswer replaces what the resolver says.
func (o *Outside) SetAnswer(a Answerer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = a
}

// Answer returns what answers now.
func (o *Outside) Answer() Answerer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answer
}

// Asked returns the questions that reached the resolver so far, as "name type".
func (o *Outside) Asked() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.asked...)
}

// AskedBy returns how many queries came from a client's own address. A pod's come so while interception is off.
func (o *Outside) AskedBy(client netip.Addr) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clients[client]
}

// Close ends all servers.
func (o *Outside) Close() {
	for _, s := range o.servers {
		_ = s.Shutdown()
	}
	for _, c := range o.closers {
		_ = c.Close()
	}
}

func (o *Outside) serveDNS(at netip.AddrPort) error {
	c, err := o.world.ListenPacket("udp", at.String())
	if err != nil {
		return fmt.Errorf("serve DNS at %s: %w", at, err)
	}
	l, err := o.world.Listen(at.String())
	if err != nil {
		return fmt.Errorf("serve DNS at %s: %w", at, err)
	}
	for _, s := range []*dns.Server{{PacketConn: c, Handler: o}, {Listener: l, Handler: o}} {
		o.servers = append(o.servers, s)
		go s.ActivateAndServe()
	}
	return nil
}

// ServeDNS implements dns.Handler.
func (o *Outside) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	client, _ := netip.ParseAddrPort(w.RemoteAddr().String())
	o.mu.Lock()
	answer := o.answer
	o.clients[client.Addr().Unmap()]++
	if len(query.Question) == 1 {
		o.asked = append(o.asked, query.Question[0].Name+" "+dns.TypeToString[query.Question[0].Qtype])
	}
	o.mu.Unlock()
	if r := answer(query); r != nil {
		if w.RemoteAddr().Network() == "udp" {
			r.Truncate(payload(query))
		}
		_ = w.WriteMsg(r)
	}
}

// payload is the longest reply over UDP that a query allows (RFC 6891 §6.2.3).
func payload(query *dns.Msg) int {
	if opt := query.IsEdns0(); opt != nil {
		return max(int(opt.UDPSize()), dns.MinMsgSize)
	}
	return dns.MinMsgSize
}

func (o *Outside) echoTCP(port int) error {
	l, err := o.world.Listen(fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return err
	}
	o.closers = append(o.closers, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := fmt.Fprintf(c, "%s\n", c.RemoteAddr()); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return nil
}

func (o *Outside) echoUDP(port int) error {
	c4, err := o.world.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return err
	}
	c6, err := o.world.ListenPacket("udp6", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return err
	}
	o.closers = append(o.closers, c4, c6)
	return echo.ServeUDP(c4, c6, func(from net.Addr, said []byte) []byte { return append([]byte(from.String()+"\n"), said...) })
}
