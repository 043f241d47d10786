package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/upstream"
)

const (
	// drainMost bounds how long queries in flight may hold up a Listen that
	// takes their address away; more than the longest deadline of a forward.
	drainMost = 11 * time.Second
	// lastPackets is how long a socket that is to be closed is still read: what
	// the kernel had queued is answered.
	lastPackets = 50 * time.Millisecond
	// receiveBuffer is asked of the kernel for each UDP socket: some 2,000
	// queries while the reader is not scheduled.
	receiveBuffer = 1 << 20
	// portTries is how often a port that the kernel chose for UDP is tried for TCP.
	portTries = 8
)

// listener is one address, over UDP and TCP.
type listener struct {
	s       *Server
	addr    netip.AddrPort // bound
	udp     *net.UDPConn
	raw     syscall.RawConn // udp
	reader  *mmsg.Reader
	replies *mmsg.ReplyQueue
	queries upstream.Batch // the reader's
	tcp     *net.TCPListener
	ends    sync.WaitGroup // the reader and the accepter
	work    sync.WaitGroup // queries over UDP in flight
	mu      sync.Mutex
	conns   map[*conn]bool
	over    bool // no new connections
}

// Listen makes the server serve exactly these addresses, over UDP and TCP each:
// new ones are opened, then those not listed are drained and closed. Each has a
// socket of its own, so that replies come from the address that was asked. With
// port 0 the kernel chooses; Addrs tells.
//
// On an error, which names the address and the protocol, nothing changed.
func (s *Server) Listen(addrs []netip.AddrPort) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("listen: the server is closed: %w", net.ErrClosed)
	}
	fresh := map[netip.AddrPort]*listener{}
	for _, a := range addrs {
		if s.open[a] != nil || fresh[a] != nil {
			continue
		}
		l, err := s.bind(a)
		if err != nil {
			s.mu.Unlock()
			for _, l := range fresh {
				l.shut()
			}
			return err
		}
		fresh[a] = l
	}
	for a, l := range fresh {
		s.open[a] = l
		l.serve()
	}
	var gone []*listener
	for a, l := range s.open {
		if !slices.Contains(addrs, a) {
			gone = append(gone, l)
			delete(s.open, a)
		}
	}
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), drainMost)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range gone {
		wg.Go(func() { l.drain(ctx) })
	}
	wg.Wait()
	return nil
}

// Addrs returns the addresses that are served, sorted.
func (s *Server) Addrs() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := make([]netip.AddrPort, 0, len(s.open))
	for _, l := range s.open {
		addrs = append(addrs, l.addr)
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return addrs
}

// bind opens both sockets of an address.
func (s *Server) bind(a netip.AddrPort) (*listener, error) {
	if !a.Addr().IsValid() || a.Addr().IsUnspecified() {
		return nil, fmt.Errorf("listen on %s: replies would leave from any address; list each address by itself", a)
	}
	var err error
	for range portTries {
		var l *listener
		if l, err = s.bindOnce(a); err == nil {
			return l, nil
		}
		if a.Port() != 0 {
			break
		}
	}
	return nil, err
}

func (s *Server) bindOnce(a netip.AddrPort) (*listener, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a))
	if err != nil {
		return nil, listenError("UDP", a, err)
	}
	_ = udp.SetReadBuffer(receiveBuffer) // the kernel's default serves as well
	bound := netip.AddrPortFrom(a.Addr(), udp.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(bound))
	if err != nil {
		_ = udp.Close()
		return nil, listenError("TCP", bound, err)
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		_, _ = udp.Close(), tcp.Close()
		return nil, listenError("UDP", bound, err)
	}
	l := &listener{s: s, addr: bound, udp: udp, raw: raw, reader: mmsg.NewReader(raw), tcp: tcp, conns: map[*conn]bool{}}
	l.replies = s.replies.New(raw, func(packets, lost int) {
		l.work.Add(-packets)
		s.stats.RepliesLost.Add(uint64(lost))
	})
	return l, nil
}

func listenError(protocol string, a netip.AddrPort, err error) error {
	return fmt.Errorf("listen on %s over %s: %w; stop what holds the port, or bind another address", a, protocol, err)
}

func (l *listener) serve() {
	l.ends.Go(l.readUDP)
	l.ends.Go(l.accept)
}

// drain answers what was asked already, then closes the sockets: at once when
// ctx ends.
func (l *listener) drain(ctx context.Context) {
	_ = l.tcp.Close()
	_ = l.udp.SetReadDeadline(time.Now().Add(lastPackets))
	stop := context.AfterFunc(ctx, l.shut)
	defer stop()
	l.ends.Wait()
	l.mu.Lock()
	l.over = true
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.finish()
	}
	done := make(chan struct{})
	go func() {
		l.work.Wait()
		for _, c := range conns {
			<-c.ended
		}
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	l.shut()
}

// shut closes every socket.
func (l *listener) shut() {
	_ = l.tcp.Close()
	_ = l.udp.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// final tells whether a socket's error ends its loop; others pass.
func final(err error) bool {
	var timeout net.Error
	return errors.Is(err, net.ErrClosed) || errors.As(err, &timeout) && timeout.Timeout()
}
