package access

import (
	"net"
	"net/netip"
	"sync"

	"github.com/namegate/namegate/share"
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

// boundedListener closes connections that are too many, of all listeners of one server, or too often.
type boundedListener struct {
	net.Listener
	slots *share.Slots[netip.Addr]
	often *throttle
}

// Accept returns the next connection that has a slot.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var from netip.Addr
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = a.AddrPort().Addr()
		}
		if l.often.take(from) {
			if release := slot(l.slots, from); release != nil {
				return &heldConn{Conn: c, release: sync.OnceFunc(release)}, nil
			}
		}
		c.Close()
	}
}

// slot takes a slot for a connection of an address, nil where there is none.
func slot(of *share.Slots[netip.Addr], from netip.Addr) (release func()) {
	each := connectionsOfOne
	if from = callerNetwork(from); from.IsLoopback() {
		each = connectionsOfLocal
	}
	release, _ = of.Acquire(from, each, maxConnections)
	return release
}

// heldConn is a connection that gives its slot back when it is closed.
type heldConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *heldConn) Close() error {
	c.release()
	return c.Conn.Close()
}
