package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// listen makes the lab serve on a loopback address and closes it with the test.
func (l *lab) listen() netip.AddrPort {
	l.t.Helper()
	fatal.If(l.t, l.s.Listen([]netip.AddrPort{loopback}))
	l.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.s.Close(ctx); err != nil {
			l.t.Errorf("close: %v", err)
		}
	})
	return l.s.Addrs()[0]
}

// client is a socket of a pod of the lab, by its loopback address.
func client(t testing.TB, network, from string, to netip.AddrPort) *dns.Conn {
	t.Helper()
	ip := net.ParseIP(from)
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: ip}, Timeout: time.Minute}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	c, err := d.Dial(network, to.String())
	fatal.If(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &dns.Conn{Conn: c, UDPSize: 4096}
}

func exchange(t testing.TB, c *dns.Conn, m *dns.Msg) *dns.Msg {
	t.Helper()
	fatal.If(t, c.WriteMsg(m))
	r, err := c.ReadMsg()
	fatal.If(t, err)
	diff.MustEqual(t, m.Id, r.Id, "the ID of a reply")
	return r
}

func TestServeOverUDPAndTCP(t *testing.T) {
	l := newLab(t, labTable)
	at := l.listen()
	for _, network := range []string{"udp", "tcp"} {
		r := exchange(t, client(t, network, "127.0.0.2", at), newQuery("www.example.org", dns.TypeA))
		diff.Equal(t, 3, len(r.Answer), network, r)
		if rec := l.log.last(t); rec.TCP != (network == "tcp") || rec.Pod.Name != "web" {
			t.Errorf("%s: logged %+v", network, rec)
		}
		if r = exchange(t, client(t, network, "127.0.0.4", at), newQuery("other.test", dns.TypeA)); r.Rcode != dns.RcodeRefused {
			t.Errorf("%s: rcode %d", network, r.Rcode)
		}
	}
	fatal.Await(t, "a place is given back after the reply left", func() bool { return l.s.Stats().InFlight == 0 })
	if s := l.s.Stats(); s.Queries != 4 || s.QueriesTCP != 2 || s.Allowed != 2 || s.Refused != 2 {
		t.Errorf("stats %+v", s)
	}
}

// noSocket sends nothing: the replies that leave are lost.
type noSocket struct{ syscall.RawConn }

func (noSocket) Write(func(uintptr) bool) error { return net.ErrClosed }

// The loopback counts as the node, so the unknown source's packet is injected.
func TestUnknownSourcesGetREFUSED(t *testing.T) {
	l := newLab(t, labTable)
	packet := packed(t, newQuery("www.example.org", dns.TypeA))
	b := mmsg.NewReader(noSocket{})
	p := listener.NewPacket(b, packet, netip.MustParseAddrPort("198.51.100.7:5353"))
	(&handler{s: l.s, local: endpoint}).take(&p, noon)
	if want := wire.ErrorReply(packet, dns.RcodeRefused); b.Flush() != 1 || string(b.Room()[:len(want)]) != string(want) {
		t.Errorf("not one reply, or it is %x, want %x", b.Room()[:len(want)], want)
	}
	if l.s.Stats().UnknownSources != 1 || len(l.up.asked) != 0 {
		t.Errorf("stats %+v, asked %v", l.s.Stats(), l.up.asked)
	}
}

func TestSelfQuery(t *testing.T) {
	l := newLab(t, nil)
	at := l.listen()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal.If(t, l.s.SelfQuery(ctx, at))
	if s := l.s.Stats(); s.SelfQueries != 1 || len(l.up.asked) != 0 {
		t.Errorf("stats %+v, asked %v", s, l.up.asked)
	}
	fatal.If(t, l.s.Listen(nil))
	if err := l.s.SelfQuery(ctx, at); err == nil {
		t.Error("a closed socket answered")
	}
}

func TestReservedNameHasOnlyText(t *testing.T) {
	l := newLab(t, nil)
	for _, class := range []uint16{dns.ClassINET, dns.ClassCHAOS} {
		m := newQuery("Alive.Namegate.Invalid", dns.TypeTXT)
		m.Question[0].Qclass = class
		r := l.send("127.0.0.1", m)
		if len(r.Answer) != 1 || r.Answer[0].(*dns.TXT).Txt[0] != aliveText {
			t.Errorf("class %d: %v", class, r)
		}
	}
	if r := l.ask("10.1.0.2", "alive.namegate.invalid", dns.TypeA); r.Rcode != 0 || len(r.Answer) != 0 || len(l.up.asked) != 0 {
		t.Errorf("reply %v", r)
	}
}

func TestConfigureKeepsUnchangedParts(t *testing.T) {
	l := newLab(t, labTable)
	up := startScript(t, honest("192.0.2.1"))
	l.live(zoneOf(up))
	c := *l.s.setup.Load().config
	c.Mark, c.Hold = 0x80, 0
	if got := l.s.Configure(&c); strings.Join(got, " ") != "forward hold mark" {
		t.Errorf("pending %v", got)
	}
	if all := l.s.Upstreams(); len(all) != 1 || all[0].Up != 1 {
		t.Errorf("upstreams %v", all)
	}
	wantAnswer(t, 1, l.ask("10.1.0.6", "example.org", dns.TypeA))

	d := c
	d.Intercept = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	d.Zones = []corefile.Zone{{To: []netip.AddrPort{up.Addr, netip.MustParseAddrPort("192.0.2.8:53")}, Deadline: time.Second, Timeout: time.Second}}
	for range 2 { // the pending restart is reported again: a reload does not apply it
		if got := l.s.Configure(&d); strings.Join(got, " ") != "forward hold intercept mark" {
			t.Errorf("pending %v", got)
		}
	}
	diff.Empty(t, l.s.Configure(l.s.start), "as at the start, and pending")
}

type faulty struct{}

func (faulty) resolve(wire.Query) (found, error) { panic("a fault for the test") }

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestStormLeavesNothing: after a storm with lying, silent and refusing upstreams
// and a kernel that fails, descriptors, goroutines and places are as before.
func TestStormLeavesNothing(t *testing.T) {
	ups := []*scripted{
		startScript(t, one("192.0.2.1")),
		startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
			switch q.Question[0].Name[0] % 4 {
			case 0:
				return nil
			case 1:
				return [][]byte{unreadable(q), {1}, nil}
			case 2:
				return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = !tcp })}
			}
			return [][]byte{says(q, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })}
		}),
	}
	before, files := runtime.NumGoroutine(), openFiles(t)
	l := newSocketLab(t, false)
	l.granter.tells(func(grants []policy.Grant, then GrantCallback) {
		if grants[0].Name[2]%3 != 0 {
			go then.Granted(map[bool]error{true: errKernelBusy}[grants[0].Name[1]%2 == 0], false)
		}
	})
	c := configWith(t, "cache")
	c.GrantTimeout, c.Limits.QueriesPerPod = 100*time.Millisecond, 600
	l.asks(c, func(z *corefile.Zone) {
		z.Policy, z.Timeout, z.Deadline, z.MaxFails = corefile.RoundRobin, 100*time.Millisecond, 400*time.Millisecond, 2
	}, ups...)
	fatal.If(t, l.s.Listen([]netip.AddrPort{loopback}))
	const queries = 600
	to := l.s.Addrs()[0]
	socket, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(to))
	fatal.If(t, err)
	conn := &dns.Conn{Conn: socket}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var read atomic.Int64
	go func() {
		for i := range queries {
			if err := conn.WriteMsg(newQuery(fmt.Sprintf("%c%d.example.org", 'a'+i%26, i), dns.TypeA)); err != nil {
				t.Error(err)
			}
			for int64(i)-read.Load() >= 200 { // the client's socket holds as many replies
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for i := range queries {
		if _, err := conn.ReadMsg(); err != nil {
			t.Fatalf("reply %d: %v, %+v", i, err, l.s.Stats())
		}
		read.Add(1)
	}
	if s := l.settled(); s.Panics != 0 || s.Failed == 0 || s.Allowed == 0 || s.ShedPod != 0 {
		t.Errorf("%+v", s)
	}
	_ = conn.Close()
	fatal.If(t, l.s.Close(context.Background()))
	fatal.Await(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })
	fatal.Await(t, "the end of the descriptors", func() bool { return openFiles(t) <= files })
}
