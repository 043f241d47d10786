package listener

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/stats"
)

const (
	// maxDrain bounds how long queries in flight may hold up a Listen that
	// takes their address away; more than the longest deadline of a forward.
	maxDrain = 11 * time.Second
	// lastPackets is how long a socket is read before it is closed: packets that the
	// kernel had queued are answered.
	lastPackets = 50 * time.Millisecond
	// receiveBuffer is asked of the kernel for each UDP socket: some 2,000
	// queries while the reader is not scheduled.
	receiveBuffer = 1 << 20
	// portTries is how often a port that the kernel chose for UDP is tried for TCP.
	portTries = 8
)

// Handler takes the packets and the connections that arrive at one address. A panic of
// its methods costs the packets or the connection.
type Handler interface {
	// Packets takes the packets over UDP that arrived together. It is called by one
	// goroutine at a time.
	Packets(b Batch)
	// Connect takes a new connection before its first message. False: it is refused.
	Connect(c *Conn) (to Client, ok bool)
}

// Options are the parts of a Server. All are required.
type Options struct {
	// Handler makes the handler of an address.
	Handler func(local netip.Addr) Handler
	// Counters has the counters RepliesLost, Malformed and ShedConnections.
	Counters *stats.Counters[atomic.Uint64]
	// Protect runs f, and reports a fault in it, which makes ok false.
	Protect func(what string, f func()) (ok bool)
	// Step is called at the steps of a packet. Tests let a fault happen in it.
	Step func(name string)
}

// Server is the addresses that are served. Its methods may be called from any goroutine.
type Server struct {
	options Options
	replies mmsg.ReplyQueues
	mu      sync.Mutex // of the fields below
	open    map[netip.AddrPort]*listener
	closed  bool
}

// New returns a server without an address.
func New(o Options) *Server { return &Server{options: o, open: map[netip.AddrPort]*listener{}} }

// listener is one address, over UDP and TCP.
type listener struct {
	s       *Server
	addr    netip.AddrPort // bound
	udp     *mmsg.Conn
	reader  *mmsg.Reader
	replies *mmsg.ReplyQueue
	handler Handler
	got     int    // packets that came together; the reader's
	take    func() // takeAll, made once
	tcp     *net.TCPListener
	ends    sync.WaitGroup // the reader and the accepter
	work    sync.WaitGroup // packets whose reply comes later
	mu      sync.Mutex
	conns   map[*Conn]bool
	over    bool // no new connections
}

// Listen makes the server serve exactly these addresses, each over UDP and TCP: new ones
// are opened, then those not listed are drained and closed. Each has a socket of its own,
// so that replies come from the queried address. With port 0 the kernel chooses; Addrs
// returns it.
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
		l.ends.Go(l.readUDP)
		l.ends.Go(l.accept)
	}
	var gone []*listener
	for a, l := range s.open {
		if !slices.Contains(addrs, a) {
			gone = append(gone, l)
			delete(s.open, a)
		}
	}
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), maxDrain)
	defer cancel()
	drain(ctx, slices.Values(gone))
	return nil
}

// drain drains addresses, all at a time.
func drain(ctx context.Context, all iter.Seq[*listener]) {
	var wg sync.WaitGroup
	for l := range all {
		wg.Go(func() { l.drain(ctx) })
	}
	wg.Wait()
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

// SendReplies sends the replies that were batched.
func (s *Server) SendReplies() { s.replies.Send() }

// Close stops listening, lets the queries in flight end, and closes the sockets: at once
// when ctx ends. A closed server cannot listen again.
func (s *Server) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.open = map[netip.AddrPort]*listener{}
	s.mu.Unlock()
	drain(ctx, maps.Values(open))
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
	conn, err := mmsg.NewConn(udp)
	if err != nil {
		_ = tcp.Close()
		return nil, listenError("UDP", bound, err)
	}
	l := &listener{s: s, addr: bound, udp: conn, reader: mmsg.NewReader(conn), tcp: tcp, conns: map[*Conn]bool{}}
	l.handler, l.take = s.options.Handler(bound.Addr()), l.takeAll
	l.replies = s.replies.New(conn, func(packets, lost int) {
		l.work.Add(-packets)
		s.options.Counters.RepliesLost.Add(uint64(lost))
	})
	return l, nil
}

func listenError(protocol string, a netip.AddrPort, err error) error {
	return fmt.Errorf("listen on %s over %s: %w; stop what holds the port, or bind another address", a, protocol, err)
}

// drain answers the received queries, then closes the sockets: immediately when ctx ends.
func (l *listener) drain(ctx context.Context) {
	_ = l.tcp.SetDeadline(time.Now())
	_ = l.udp.SetReadDeadline(time.Now().Add(lastPackets))
	stop := context.AfterFunc(ctx, l.shut)
	defer stop()
	l.ends.Wait()
	l.mu.Lock()
	l.over = true
	conns := slices.Collect(maps.Keys(l.conns))
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
		_ = c.nc.Close()
	}
}

// final tells whether a socket's error ends its loop; others pass.
func final(err error) bool {
	var timeout net.Error
	return errors.Is(err, net.ErrClosed) || errors.As(err, &timeout) && timeout.Timeout()
}
