package enforcer

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const probeName = "nonce.self-test.namegate."

// injection hands the packets that are sent to each interface to its function.
type injection struct {
	lines  map[string]func(packet []byte)
	sent   []sentPacket
	broken error
}

type sentPacket struct {
	iface  string
	packet []byte
}

func (i *injection) Send(iface string, packet []byte) error {
	received := i.lines[iface]
	if i.broken != nil || received == nil {
		return cmp.Or(i.broken, errors.New("there is no such interface"))
	}
	i.sent = append(i.sent, sentPacket{iface, slices.Clone(packet)})
	go received(slices.Clone(packet))
	return nil
}

// proving is a world with a selected pod at home on a routed link, and the
// injection into it.
type proving struct {
	*world
	web     policy.Pod
	in      *injection
	arrived chan struct{}
	pending int // probes that are not done with
}

func newProving(t *testing.T, ips string) *proving {
	p := &proving{world: newWorld(t), web: pod("web", ips, "allow"), in: &injection{lines: map[string]func([]byte){}}}
	for _, a := range p.web.IPs {
		p.links.SetHome(a, link.Home{Iface: "veth5"})
	}
	p.apply([]policy.Pod{p.web, pod("plain", "10.1.0.7")}, pol("allow"))
	p.beats()
	return p
}

func (p *proving) beats() {
	p.t.Helper()
	fatal.If(p.t, p.e.intercept.Beat(context.Background(), func(context.Context) error { return nil }))
}

// becomes says what the node does with packets: does gets what comes in by an interface.
func (p *proving) becomes(iface string, does func(from netip.Addr)) {
	one := make(chan struct{}, 1) // packet after packet
	p.in.lines[iface] = func(packet []byte) {
		one <- struct{}{}
		does(readPacket(p.t, packet).from.Addr())
		<-one
	}
}

func (p *proving) arrives(netip.Addr) {
	select {
	case <-p.arrived:
	default:
		close(p.arrived)
	}
}

// intercepted is what the kernel does when a query comes to interception.
func (p *proving) intercepted(from netip.Addr) {
	set := "probed4"
	if from.Is6() {
		set = "probed6"
	}
	tx := p.inet.NewTransaction()
	tx.Add(&knftables.Element{Set: set, Key: []string{from.String()}})
	if err := p.inet.Run(context.Background(), tx); err != nil {
		p.t.Error(err)
	}
}

func (p *proving) test(pod policy.PodRef) (Path, error) {
	p.t.Helper()
	path, err := p.e.TestPath(context.Background(), pod, p.in.Send, func() (string, <-chan struct{}, func()) {
		p.arrived = make(chan struct{})
		p.pending++
		return probeName, p.arrived, func() { p.pending-- }
	})
	diff.Equal(p.t, 0, p.pending, "probes are not done with")
	return path, err
}

func (p *proving) wants(what string, want Path) {
	p.t.Helper()
	if got, err := p.test(p.web.PodRef); got != want || err != nil {
		p.t.Errorf("%s: %v, %v, want %v", what, got, err, want)
	}
}

// query is what a packet of the self-test says.
type query struct {
	from, to netip.AddrPort
	name     string
}

func readPacket(t testing.TB, b []byte) (q query) {
	head, src, dst := 20, 12, 16
	if b[0]>>4 == 6 {
		head, src, dst = 40, 8, 24
	}
	from, _ := netip.AddrFromSlice(b[src:dst])
	to, _ := netip.AddrFromSlice(b[dst : dst+dst-src])
	udp := b[head:]
	q.from = netip.AddrPortFrom(from, uint16(udp[0])<<8|uint16(udp[1]))
	q.to = netip.AddrPortFrom(to, uint16(udp[2])<<8|uint16(udp[3]))
	var m mdns.Msg
	if err := m.Unpack(udp[8:]); err != nil || m.Response || len(m.Question) != 1 || int(udp[4])<<8|int(udp[5]) != len(udp) {
		t.Errorf("a message %v of %d bytes: %v", &m, len(udp), err)
		return q
	}
	q.name = m.Question[0].Name
	return q
}

// TestPathOutcomes: each outcome, and the worse where the families differ.
func TestPathOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		ips      string
		does     func(*proving) func(from netip.Addr)
		want     Path
		sent     int
		duration time.Duration
	}{
		"works":                  {"10.1.0.5", func(p *proving) func(netip.Addr) { return p.arrives }, PathWorks, 1, 0},
		"works, both families":   {"10.1.0.5 fd00:1::5", func(p *proving) func(netip.Addr) { return p.arrives }, PathWorks, 2, 0},
		"works, IPv6 alone":      {"fd00:1::5", func(p *proving) func(netip.Addr) { return p.arrives }, PathWorks, 1, 0},
		"blocked":                {"10.1.0.5", func(p *proving) func(netip.Addr) { return p.intercepted }, PathBlocked, 2, testWait},
		"unseen":                 {"10.1.0.5", func(*proving) func(netip.Addr) { return func(netip.Addr) {} }, PathUnseen, 2, testWait},
		"blocked, IPv6 alone":    {"fd00:1::5", func(p *proving) func(netip.Addr) { return p.intercepted }, PathBlocked, 2, testWait},
		"IPv4 works, IPv6 not":   {"10.1.0.5 fd00:1::5", either((*proving).arrives, (*proving).intercepted), PathBlocked, 3, testWait},
		"IPv4 blocked, no IPv6":  {"10.1.0.5 fd00:1::5", either((*proving).intercepted, nil), PathBlocked, 4, 2 * testWait},
		"IPv4 unseen, IPv6 well": {"10.1.0.5 fd00:1::5", either(nil, (*proving).arrives), PathUnseen, 3, testWait},
		"the first one is lost": {"10.1.0.5", func(p *proving) func(netip.Addr) {
			n := 0
			return func(netip.Addr) {
				if n++; n == 2 {
					p.arrives(netip.Addr{})
				}
			}
		}, PathWorks, 2, testAgain},
		"slow": {"10.1.0.5", func(p *proving) func(netip.Addr) {
			return func(netip.Addr) { time.Sleep(testWait - 2*time.Millisecond); p.arrives(netip.Addr{}) }
		}, PathWorks, 2, testWait - 2*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProving(t, c.ips)
				p.becomes("veth5", c.does(p))
				began := time.Now()
				p.wants(name, c.want)
				diff.Equal(t, c.duration, time.Since(began), "it took")
				sent := p.in.sent
				diff.MustEqual(t, c.sent, len(sent), "packets were sent")
				for _, s := range sent {
					q := readPacket(t, s.packet)
					to := netip.AddrPortFrom(dns4, 53)
					if q.from.Addr().Is6() {
						to = netip.AddrPortFrom(dns6, 53)
					}
					if s.iface != "veth5" || q.to != to || q.from.Port() != 9 || q.name != probeName {
						t.Errorf("sent %+v into %s", q, s.iface)
					}
				}
				time.Sleep(testWait)
			})
		})
	}
}

// either is what the node does with each family; nil: nothing.
func either(v4, v6 func(*proving, netip.Addr)) func(*proving) func(netip.Addr) {
	return func(p *proving) func(netip.Addr) {
		return func(from netip.Addr) {
			does := v4
			if from.Is6() {
				does = v6
			}
			if does != nil {
				does(p, from)
			}
		}
	}
}

// TestPathUntested: where nothing would come of it nothing is sent, and nothing
// bad is said.
func TestPathUntested(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*proving){
		"no policy selects the pod": func(p *proving) { p.web = pod("plain", "10.1.0.7") },
		"the pod is not known":      func(p *proving) { p.web = pod("other", "10.1.0.9") },
		"interception is off":       func(p *proving) { p.clock.Pass(time.Minute) },
		"no interface leads there": func(p *proving) {
			p.links.SetHome(addr("10.1.0.5"), link.Home{})
			p.apply([]policy.Pod{p.web}, pol("allow"))
		},
		"the pod is a resolver": func(p *proving) {
			p.learns(intercept.Network{Backends: []netip.AddrPort{addrPort("10.1.0.5:53")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a slow packet is sent again
				p := newProving(t, "10.1.0.5")
				p.becomes("veth5", p.arrives)
				p.wants("before", PathWorks)
				spoil(p)
				p.wants(name, PathUntested)
				diff.Equal(t, 1, len(p.in.sent), "packets were sent")
			})
		})
	}
}

// TestPathWhileTheWorldChanges: what changed while a query was under way explains
// that it did not arrive. The enforcer's lock is free meanwhile.
func TestPathWhileTheWorldChanges(t *testing.T) {
	for name, change := range map[string]func(*proving){
		"the pod is gone":            func(p *proving) { p.apply(nil) },
		"no policy selects it":       func(p *proving) { p.apply([]policy.Pod{p.web}) },
		"interception ended":         func(p *proving) { p.clock.Pass(time.Minute) },
		"its home moved":             func(p *proving) { p.moves() },
		"it became a resolver":       func(p *proving) { p.learns(intercept.Network{Backends: []netip.AddrPort{addrPort("10.1.0.5:53")}}) },
		"another one took its place": func(p *proving) { p.apply([]policy.Pod{pod("next", "10.1.0.5", "allow")}, pol("allow")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProving(t, "10.1.0.5")
				sent := 0
				p.becomes("veth5", func(from netip.Addr) {
					p.intercepted(from)
					if sent++; sent == 1 {
						change(p)
					}
				})
				p.wants(name, PathUntested)
			})
		})
	}
}

func (p *proving) moves() {
	p.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth6"})
	p.apply([]policy.Pod{p.web}, pol("allow"))
}

// TestPathOfBridgedPod goes in by the bridge's port.
func TestPathOfBridgedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProving(t, "10.1.0.5")
		p.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "br0", Port: "port5"})
		p.apply([]policy.Pod{p.web}, pol("allow"))
		p.becomes("port5", p.arrives)
		p.wants("bridged", PathWorks)
	})
}

// TestPathErrors: what keeps a test from being made is an error that names the
// pod, and never a path that does not work.
func TestPathErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProving(t, "10.1.0.5 fd00:1::5")
		p.in.broken = errors.New("load the modules")
		path, err := p.test(p.web.PodRef)
		if path != PathUntested || err == nil || !strings.Contains(err.Error(), "load the modules") || !strings.Contains(err.Error(), "web") || !strings.Contains(err.Error(), "veth5") {
			t.Errorf("on a kernel that cannot inject: %v, %v", path, err)
		}
		p.in.broken = nil
		if path, err := p.test(p.web.PodRef); path != PathUntested || err == nil {
			t.Errorf("without the interface: %v, %v", path, err)
		}
		p.becomes("veth5", func(netip.Addr) {})
		ctx, cancel := context.WithTimeout(context.Background(), testAgain/2)
		defer cancel()
		path, err = p.e.TestPath(ctx, p.web.PodRef, p.in.Send, func() (string, <-chan struct{}, func()) { return probeName, nil, func() {} })
		if path != PathUntested || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when there is no time left: %v, %v", path, err)
		}
	})
}

// TestPathResolver: the resolver that is asked is one that pods dial; the endpoint
// only where there is no other, a Service's once it is in force.
func TestPathResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProving(t, "10.1.0.5")
		p.becomes("veth5", p.arrives)
		last := func() netip.Addr {
			t.Helper()
			p.wants("a path", PathWorks)
			sent := p.in.sent
			return readPacket(t, sent[len(sent)-1].packet).to.Addr()
		}
		diff.Equal(t, dns4, last(), "asked")
		p.learns(intercept.Network{Resolvers: addrs("10.96.0.10")})
		diff.Equal(t, addr("10.96.0.10"), last(), "with a Service")
	})
}
