package handover

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long an agent may take to end until grants end at the deadlines that
// its successor knows: an agent that hangs must not keep everything open.
const patience = 30 * time.Second

// Predecessor is the agent that served before this one, for as long as it serves.
type Predecessor struct {
	listening func(netip.Addr) bool
	now       func() time.Time
	found     time.Time
	addrs     atomic.Pointer[map[netip.Addr]netip.Addr] // replaced and never changed
}

// NewPredecessor returns a predecessor that was not looked for yet. listening tells
// whether a process serves DNS on an address, nil for the node's own sockets.
func NewPredecessor(listening func(netip.Addr) bool, now func() time.Time) *Predecessor {
	if listening == nil {
		listening = bound
	}
	p := &Predecessor{listening: listening, now: now}
	p.Forget()
	return p
}

// bound tells whether a process serves DNS on an address: then it cannot be bound a second
// time.
func bound(a netip.Addr) bool {
	c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 53).String())
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	c.Close()
	return false
}

// InUse tells whether a socket of TCP has an address and port, one that listens or one of a connection that it accepted.
func InUse(at netip.AddrPort) bool {
	domain, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(at.Port())})
	if at.Addr().Is4() {
		to.(*unix.SockaddrInet4).Addr = at.Addr().As4()
	} else {
		domain, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Bind(fd, to), syscall.EADDRINUSE)
}

// Find finds a predecessor by the serving addresses at which a process listens. dialled
// are the addresses that pods dial for these; an address to which nothing is led has none.
func (p *Predecessor) Find(serving []netip.Addr, dialled map[netip.Addr]netip.Addr) {
	addrs := map[netip.Addr]netip.Addr{}
	for _, a := range serving {
		if p.listening(a) {
			addrs[a] = dialled[a]
		}
	}
	p.found = p.now()
	p.addrs.Store(&addrs)
}

// Addrs returns its serving addresses, to the addresses that pods dial for them. The caller
// must not change the map.
func (p *Predecessor) Addrs() map[netip.Addr]netip.Addr { return *p.addrs.Load() }

// Present tells whether there is a predecessor that was not forgotten.
func (p *Predecessor) Present() bool { return len(p.Addrs()) > 0 }

// Serves tells whether an address is one of the predecessor's serving addresses.
func (p *Predecessor) Serves(a netip.Addr) bool {
	_, ok := p.Addrs()[a]
	return ok
}

// Gone tells whether the predecessor does not listen any more.
func (p *Predecessor) Gone() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Keys(p.Addrs())), p.listening)
}

// TimedOut tells whether it takes longer to end than grants wait for. The goroutine of
// Find and TimedOut is one, or they exclude each other.
func (p *Predecessor) TimedOut() bool { return p.now().Sub(p.found) >= patience }

// Forget ends the overlap.
func (p *Predecessor) Forget() { p.addrs.Store(&map[netip.Addr]netip.Addr{}) }
