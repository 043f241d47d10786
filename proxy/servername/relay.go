package servername

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
)

const (
	// lastAccept is how long a closing relay goes on accepting: connections that were led to it before they were led elsewhere.
	lastAccept = time.Second
	// acceptPause is after a failure to accept, as without a free descriptor.
	acceptPause = 5 * time.Millisecond
)

// Judge decides about connections. Its methods are called from any goroutine, Egress also by those that accept.
type Judge interface {
	// Egress decides about a connection of a source. name is "" before the hello; with a name,
	// CheckFlow alone allows it.
	Egress(source netip.Addr, to netip.AddrPort, name fqdn.Name) policy.Egress
	// Keeps tells whether an open connection may go on. name is "" if it was not checked.
	Keeps(pod policy.PodRef, source netip.Addr, to netip.AddrPort, name fqdn.Name) bool
	// Dialling is called before a socket that is bound to the port of local connects.
	Dialling(ctx context.Context, local, to netip.AddrPort) error
}

// Reason is why a connection was denied or ended by the relay.
type Reason string

// The reasons.
const (
	ReasonPolicy     Reason = "policy"     // denied, whatever its server name is
	ReasonServerName Reason = "serverName" // it has no server name that is granted
	ReasonLimit      Reason = "limit"      // a bound is reached
	ReasonRevoked    Reason = "revoked"    // it was open, and is not allowed any more
	ReasonShutdown   Reason = "shutdown"   // it was open when the agent ended
)

// Denial is a connection that was reset.
type Denial struct {
	policy.Egress // the decision before the hello
	Source        netip.AddrPort
	Dialled       netip.AddrPort
	// ServerName is what the client claimed, up to maxClaimed bytes of any value; "" if it was not read.
	ServerName string
	Reason     Reason
	// Detail says more, for people.
	Detail string
}

// Options are the parts of a Relay.
type Options struct {
	Judge  Judge
	Limits corefile.RelayLimits
	// Denied is called for each connection that is reset by a decision. It must not block.
	Denied func(Denial)
	// Protect runs f, and reports a fault in it, which makes ok false.
	Protect func(what string, f func()) (ok bool)
	// Mark is of the packets to destinations: the kernel lets nothing lead them elsewhere. 0 is none.
	Mark uint32
	// Original returns the destination of a connection before it was led here. Nil asks the kernel.
	Original func(*net.TCPConn) (netip.AddrPort, error)

	helloTimeout time.Duration // 0 is the usual one
}

// Relay relays connections. Its methods may be called from any goroutine.
type Relay struct {
	options  Options
	ports    *ports
	counters counters
	shares   shares
	serving  sync.WaitGroup // listeners and connections
	mu       sync.Mutex     // of the fields below
	closed   bool
	own      map[netip.AddrPort]*net.TCPListener
	open     map[*conn]struct{}
}

// New returns a relay that serves no address.
func New(o Options) *Relay {
	if o.helloTimeout == 0 {
		o.helloTimeout = helloTimeout
	}
	if o.Original == nil {
		o.Original = original
	}
	ports := localPorts()
	ports.mark = int(o.Mark)
	return &Relay{options: o, ports: ports, shares: newShares(o.Limits), counters: newCounters(), own: map[netip.AddrPort]*net.TCPListener{}, open: map[*conn]struct{}{}}
}

// Listen opens a listener that Serve takes. Without Multipath TCP the kernel knows the original destination and can
// splice. A connection keeps alive from when it is admitted, so that a denied one costs less.
func Listen(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// Serve relays what a listener accepts, until Close. It closes the listener.
func (r *Relay) Serve(l *net.TCPListener) {
	defer l.Close()
	at := addrPort(l.Addr())
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.own[at] = l
	r.serving.Add(1)
	r.mu.Unlock()
	defer r.serving.Done()
	for {
		client, err := l.AcceptTCP()
		var timeout net.Error
		switch {
		case err == nil:
			if !r.options.Protect("an accepted connection", func() { r.accept(client) }) {
				reset(client)
			}
		case errors.Is(err, net.ErrClosed) || errors.As(err, &timeout) && timeout.Timeout():
			r.mu.Lock()
			delete(r.own, at)
			r.mu.Unlock()
			return
		default:
			time.Sleep(acceptPause)
		}
	}
}

// accept judges a connection, and starts it. It does not wait for a client or a destination.
func (r *Relay) accept(client *net.TCPConn) {
	to, err := r.options.Original(client)
	if err != nil || r.isOwn(to) {
		r.counters.Misdirected.Add(1)
		reset(client)
		return
	}
	c := newConn(r, client, to)
	c.egress = r.options.Judge.Egress(c.source.Addr(), to, "")
	if c.egress.Verdict == policy.DenyFlow || c.egress.Pod == (policy.PodRef{}) {
		c.deny(ReasonPolicy, "")
		return
	}
	if bound := r.shares.take(c.key()); bound != "" {
		c.deny(ReasonLimit, bound)
		return
	}
	r.mu.Lock()
	r.open[c] = struct{}{}
	r.serving.Add(1)
	r.mu.Unlock()
	go func() {
		defer r.end(c)
		if !r.options.Protect("a relayed connection", c.serve) {
			c.reset()
		}
	}()
}

// end forgets a connection, both of whose halves have ended.
func (r *Relay) end(c *conn) {
	waits := c.close()
	c.heard()
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
	r.shares.release(c.key(), waits)
	r.serving.Done()
}

// isOwn tells whether a destination would lead the relay to itself, or to the node.
func (r *Relay) isOwn(to netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.own {
		if at.Addr() == to.Addr() && !at.Addr().IsLoopback() || at == to {
			return true
		}
	}
	return to.Port() == 0 || to.Addr().IsUnspecified() || to.Addr().IsMulticast()
}

// Recheck resets each open connection that the Judge does not keep. What the Judge said yes to before a change of its own
// is open by then.
func (r *Relay) Recheck() {
	for _, c := range r.all() {
		if !r.options.Protect("a relayed connection", func() {
			if name, judged := c.judged(); judged && !r.options.Judge.Keeps(c.egress.Pod, c.source.Addr(), c.dialled, name) {
				c.deny(ReasonRevoked, "")
			}
		}) {
			c.reset()
		}
	}
}

func (r *Relay) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.open))
}

// Close accepts what is queued, stops listening, and returns when all connections have ended. It resets those that are
// open when ctx ends.
func (r *Relay) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	for _, l := range r.own {
		_ = l.SetDeadline(time.Now().Add(lastAccept))
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		r.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	r.mu.Lock()
	for _, l := range r.own {
		_ = l.Close()
	}
	r.mu.Unlock()
	for {
		for _, c := range r.all() {
			c.deny(ReasonShutdown, "")
		}
		select {
		case <-done:
			return
		case <-time.After(acceptPause): // a listener had accepted one more
		}
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
