package cyclonus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/e2e/lab"
)

// inbox has the packets that arrived at pods: a datagram or an SCTP packet with the token
// of a probe is for that probe. late is the pods where one arrived that was given up.
type inbox struct {
	tokens  atomic.Uint32
	mu      sync.Mutex
	waiting map[string]chan string
	late    []string
}

// expect returns a token and the channel of the pod at which it arrived.
func (b *inbox) expect() (token []byte, arrived chan string, forget func()) {
	token, arrived = lab.Token(b.tokens.Add(1)), make(chan string, 4)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[string(token)] = arrived
	return token, arrived, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, string(token))
	}
}

func (b *inbox) came(at string, packet []byte) {
	i := bytes.Index(packet, []byte("ngtoken:"))
	if i < 0 || len(packet) < i+16 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	probe, waits := b.waiting[string(packet[i:i+16])]
	if !waits {
		b.late = append(b.late, at)
		return
	}
	select {
	case probe <- at:
	default:
	}
}

// gaveUp returns what arrived after its probe was given up, once.
func (b *inbox) gaveUp() (late []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.late {
		late = append(late, "a packet arrived at "+at+" after its probe was said not to arrive")
	}
	b.late = nil
	return late
}

// servedPorts are the ports that every pod serves with each protocol.
var servedPorts = []uint16{80, 81}

// serve starts a pod's servers. They identify themselves; SCTP packets are read by a raw
// socket, because not every kernel has SCTP.
func (s *sited) serve(b *inbox) error {
	for _, port := range servedPorts {
		l, err := s.Listen(fmt.Sprintf("[::]:%d", port))
		if err != nil {
			return err
		}
		s.servers = append(s.servers, l.Close)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintln(c, s.key)
				c.Close()
			}
		}()
		for _, network := range []string{"udp4", "udp6"} {
			if err := s.packets(network, fmt.Sprintf(":%d", port), func(c net.PacketConn, from net.Addr, p []byte) {
				b.came(s.key, p)
				_, _ = c.WriteTo([]byte(s.key), from)
			}); err != nil {
				return err
			}
		}
	}
	for _, network := range []string{"ip4:132", "ip6:132"} {
		if err := s.packets(network, "", func(_ net.PacketConn, _ net.Addr, p []byte) {
			if len(p) > 4 && (binary.BigEndian.Uint16(p[2:]) == servedPorts[0] || binary.BigEndian.Uint16(p[2:]) == servedPorts[1]) {
				b.came(s.key, p)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *sited) packets(network, addr string, each func(net.PacketConn, net.Addr, []byte)) error {
	c, err := s.ListenPacket(network, addr)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, c.Close)
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			each(c, from, buf[:n])
		}
	}()
	return nil
}

// silence is how long a probe waits that must not arrive. It is short, since there are many: that a datagram or an
// SCTP packet arrives later is a failure of its own.
const silence = 100 * time.Millisecond

func patienceFor(want lab.Outcome) time.Duration {
	if want == lab.Silent {
		return silence
	}
	return lab.Limit
}

// probe sends from a pod to an address and returns what became of it: that it was answered
// says that it arrived at the pod that it was for, all else that it did not arrive. An error is
// a failure of the test.
func (g *ground) probe(from, to *sited, at netip.AddrPort, protocol corev1.Protocol, patience time.Duration) (lab.Outcome, error) {
	var arrived string
	var err error
	switch protocol {
	case corev1.ProtocolTCP:
		arrived, err = from.probeTCP(at, patience)
	case corev1.ProtocolUDP:
		arrived, err = g.probeUDP(from, at, patience)
	case corev1.ProtocolSCTP:
		arrived, err = g.probeSCTP(from, at, patience)
	default:
		err = fmt.Errorf("protocol %q is not known", protocol)
	}
	var timeout net.Error
	switch {
	case err != nil && refused(err):
		return lab.Refused, nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return lab.Silent, nil
	case err != nil:
		return "", fmt.Errorf("%s to %s %s: %w", from.key, protocol, at, err)
	case arrived != to.key:
		return "", fmt.Errorf("%s to %s %s arrived at %q, not at %s", from.key, protocol, at, arrived, to.key)
	}
	return lab.Answered, nil
}

func refused(err error) bool {
	for _, e := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// port returns a source port that the pod did not use for long: a change of NetworkPolicies ends no connection, and
// a datagram from the port of an earlier one belongs to that one's.
func (s *sited) port() uint16 { return uint16(10000 + s.ports.Add(1)%50000) }

func (s *sited) probeTCP(at netip.AddrPort, patience time.Duration) (string, error) {
	c, err := s.Dial("tcp", at.String(), patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(lab.Limit)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("behind the handshake: %v", err)
	}
	return strings.TrimSpace(line), nil
}

func (g *ground) probeUDP(from *sited, at netip.AddrPort, patience time.Duration) (string, error) {
	token, arrived, forget := g.inbox.expect()
	defer forget()
	source := from.Addr4
	if at.Addr().Is6() {
		source = from.Addr6
	}
	c, err := from.DialFrom("udp", netip.AddrPortFrom(source, from.port()).String(), at.String(), patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := c.Write(token); err != nil {
		return "", err
	}
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	if err != nil {
		select {
		case who := <-arrived:
			return "", fmt.Errorf("it arrived at %s, and the sender was told %q", who, err.Error())
		default:
			return "", err
		}
	}
	return string(buf[:n]), nil
}

// probeSCTP sends the packet that opens an association. The refusal of an earlier one
// to the same address would be this socket's too, so a pod sends one at a time that may be refused.
func (g *ground) probeSCTP(from *sited, at netip.AddrPort, patience time.Duration) (string, error) {
	token, arrived, forget := g.inbox.expect()
	defer forget()
	network := "ip4:132"
	if at.Addr().Is6() {
		network = "ip6:132"
	}
	c, err := from.Dial(network, at.Addr().String(), patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(lab.SCTPInit(from.port(), at.Port(), token)); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	told := make(chan error, 1)
	go func() {
		buf := make([]byte, 256)
		for {
			if _, err := c.Read(buf); err != nil {
				told <- err
				return
			}
		}
	}()
	select {
	case who := <-arrived:
		return who, nil
	case err := <-told:
		select {
		case who := <-arrived:
			return "", fmt.Errorf("it arrived at %s, and the sender was told %q", who, err.Error())
		default:
			return "", err
		}
	}
}
