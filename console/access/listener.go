package access

import (
	"net"
	"net/netip"
	"sync"
)

// The maximum number of connections, of all callers and of one address. A command has
// one; further connections are closed immediately.
const (
	maxConnections     = 128
	connectionsOfOne   = 16
	connectionsOfLocal = 64 // of the node itself, as by a port-forward
)

// The maximum rate of connections, of one address and of all: a handshake costs the agent
// a fraction of a millisecond, or several with hundreds of certificates, and the caller
// is not authenticated yet.
var (
	connectionRate    = rateLimit{20, 100}
	allConnectionRate = rateLimit{60, 300}
)

// boundedListener closes connections that are too many, or too often.
type boundedListener struct {
	net.Listener
	limiter *connLimiter
	often   *throttle
}

// connLimiter counts connections, of all listeners of one server.
type connLimiter struct {
	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

func newConnLimiter() *connLimiter { return &connLimiter{of: map[netip.Addr]int{}} }

// acquire tells whether one more connection of an address is held.
func (s *connLimiter) acquire(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := connectionsOfOne
	a = callerNetwork(a)
	if a.IsLoopback() {
		most = connectionsOfLocal
	}
	if s.all >= maxConnections || s.of[a] >= most {
		return false
	}
	s.all++
	s.of[a]++
	return true
}

func (s *connLimiter) release(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	a = callerNetwork(a)
	if s.of[a]--; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// Accept returns the next connection that has a seat.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var from netip.Addr
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = a.AddrPort().Addr().Unmap()
		}
		if l.often.take(from) && l.limiter.acquire(from) {
			return &seated{Conn: c, give: sync.OnceFunc(func() { l.limiter.release(from) })}, nil
		}
		c.Close()
	}
}

// seated is a connection that gives its seat back when it is closed.
type seated struct {
	net.Conn
	give func()
}

// Close closes the connection.
func (c *seated) Close() error {
	c.give()
	return c.Conn.Close()
}
