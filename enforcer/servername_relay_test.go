package enforcer_test

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// relay echoes what is led to it and not denied, as if each name were granted.
type relay struct {
	port uint16
	mu   sync.Mutex
	led  map[netip.AddrPort]ledTo // by source
	all  map[netip.AddrPort]net.Listener
}

// ledTo is what a source dialled, and when the relay accepted it: ports are used again.
type ledTo struct {
	to netip.AddrPort
	at time.Time
}

// serveRelay has connections led to an echo.
func (p *peering) serveRelay() {
	p.t.Helper()
	p.relay = &relay{port: 15443, led: map[netip.AddrPort]ledTo{}, all: map[netip.AddrPort]net.Listener{}}
	p.countByName(p.services...)
	p.t.Cleanup(p.relay.close)
}

func (r *relay) close() { r.closeBut(nil) }

// closeBut ends the listeners of other addresses.
func (r *relay) closeBut(kept []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, l := range r.all {
		if !slices.Contains(kept, at) {
			l.Close()
			delete(r.all, at)
		}
	}
}

// listen listens on the addresses of the present agent.
func (r *relay) listen(p *peering) {
	assigned, _ := p.e.Interception().Relays()
	if len(assigned) != 2 {
		p.t.Fatalf("the relay has %v", assigned)
	}
	r.closeBut(assigned)
	e := p.e
	egress := func(source netip.Addr, to netip.AddrPort) (d policy.Egress) {
		_ = p.Node.Do(func() error { d = e.Egress(source, to, ""); return nil })
		return d
	}
	for _, at := range assigned {
		r.mu.Lock()
		there := r.all[at] != nil
		r.mu.Unlock()
		if there {
			continue
		}
		l, err := p.Node.Listen(at.String())
		fatal.If(p.t, err)
		r.mu.Lock()
		r.all[at] = l
		r.mu.Unlock()
		go r.serve(l, egress)
	}
}

func (r *relay) serve(l net.Listener, egress func(netip.Addr, netip.AddrPort) policy.Egress) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		source := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		to := original(c.(*net.TCPConn))
		r.mu.Lock()
		r.led[source] = ledTo{to, time.Now()}
		r.mu.Unlock()
		go func() {
			defer c.Close()
			if egress(source.Addr(), to).Verdict == policy.DenyFlow {
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			}
			_, _ = io.Copy(c, c)
		}()
	}
}

// original is what the other end of a connection dialled.
func original(c *net.TCPConn) (to netip.AddrPort) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to
	}
	_ = raw.Control(func(fd uintptr) {
		if c.RemoteAddr().(*net.TCPAddr).IP.To4() != nil {
			if b, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
				m := b.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[4:8])), uint16(m[2])<<8|uint16(m[3]))
			}
		} else if b, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
			to = netip.AddrPortFrom(netip.AddrFrom16(b.Addr.Addr), b.Addr.Port>>8|b.Addr.Port<<8)
		}
	})
	return to
}

// dialled is what a source dialled since a time, if it was led here.
func (r *relay) dialled(from net.Addr, since time.Time) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	if led := r.led[from.(*net.TCPAddr).AddrPort()]; led.at.After(since) {
		return led.to
	}
	return netip.AddrPort{}
}

// checked returns a rule that requires the server name.
func checked(tier policy.Tier, ports policy.PortSet, of string, names ...string) *policy.Rule {
	r := byName(tier, policy.Accept, ports, of, names...)
	r.ServerName = true
	r.ID = r.NewID()
	return r
}

// probeLed is a probe over TCP that also tells what the relay saw dialled, if it was led there.
func (p *peering) probeLed(from *lab.Host, to netip.AddrPort, patience time.Duration) (got lab.Outcome, led netip.AddrPort) {
	began := time.Now()
	c, err := from.Dial("tcp", to.String(), patience)
	if err != nil {
		return from.ProbeFor("tcp", to, patience), led // which tells how it failed
	}
	defer c.Close()
	got = lab.Echo(c, patience)
	return got, p.relay.dialled(c.LocalAddr(), began)
}

// leads expects that a connection of a pod is led to the relay, or is not.
func (p *peering) leads(when string, pod string, to netip.AddrPort, want bool) {
	p.t.Helper()
	if got, led := p.probeLed(p.Pod(pod).Host, to, lab.Limit); got != lab.Answered || (led == to) != want || led.IsValid() != want {
		p.t.Errorf("%s: %s to %s is %s, led from %v, want led %v", when, pod, to, got, led, want)
	}
}

// silent expects that dialling the relay gets nothing.
func (p *peering) silent(when string, relays ...netip.AddrPort) {
	p.t.Helper()
	var probing sync.WaitGroup
	defer probing.Wait()
	for _, at := range relays {
		via := uplinks[0]
		if at.Addr().Is6() {
			via = uplinks[1]
		}
		_, err := p.World.Run("ip", "route", "replace", at.Addr().String(), "via", via.String())
		fatal.If(p.t, err)
		for name, h := range map[string]*lab.Host{"client": p.Pod("client").Host, "other": p.Pod("other").Host, "node": p.Node, "world": p.World} {
			for _, port := range []uint16{at.Port(), 80} {
				probing.Go(func() {
					if got := h.ProbeFor("tcp", netip.AddrPortFrom(at.Addr(), port), lab.Patience); got != lab.Silent {
						p.t.Errorf("%s: %s to the relay at %s port %d: %s", when, name, at.Addr(), port, got)
					}
				})
			}
		}
	}
}

// egress asks Egress on the node.
func (p *peering) egress(source netip.Addr, to netip.AddrPort, name fqdn.Name) (d policy.Egress) {
	p.t.Helper()
	fatal.If(p.t, p.Node.Do(func() error { d = p.e.Egress(source, to, name); return nil }))
	return d
}
