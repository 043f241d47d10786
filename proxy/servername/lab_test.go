package servername

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

var podA, podB = policy.PodRef{Namespace: "shop", Name: "a", UID: "1"}, policy.PodRef{Namespace: "shop", Name: "b", UID: "2"}

// judge is a fake judge: sources are pods, and pods have names.
type judge struct {
	mu       sync.Mutex
	pods     map[netip.Addr]policy.PodRef
	verdict  policy.Verdict // before the hello
	named    policy.Verdict // of a granted name
	granted  map[policy.PodRef][]string
	dialling func(local, to netip.AddrPort) error
	fault    string // of the judge about good.test
}

func (j *judge) Egress(source netip.Addr, _ netip.AddrPort, name fqdn.Name) policy.Egress {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fault != "" && name.String() == "good.test" {
		panic(j.fault)
	}
	e := policy.Egress{Pod: j.pods[source], Verdict: j.verdict}
	if e.Pod == (policy.PodRef{}) || name != "" && !j.has(e.Pod, name) {
		e.Verdict = policy.DenyFlow
	} else if name != "" {
		e.Verdict = j.named
	}
	return e
}

func (j *judge) has(pod policy.PodRef, name fqdn.Name) bool {
	for _, n := range j.granted[pod] {
		if n == name.String() {
			return true
		}
	}
	return false
}

func (j *judge) Keeps(pod policy.PodRef, source netip.Addr, to netip.AddrPort, name fqdn.Name) bool {
	e := j.Egress(source, to, name)
	return e.Pod == pod && e.Verdict != policy.DenyFlow
}

func (j *judge) Dialling(_ context.Context, local, to netip.AddrPort) error {
	j.mu.Lock()
	f := j.dialling
	j.mu.Unlock()
	if f != nil {
		return f(local, to)
	}
	return nil
}

// onDialling sets what Dialling does.
func (j *judge) onDialling(f func(local, to netip.AddrPort) error) {
	j.change(func(j *judge) { j.dialling = f })
}

// change changes the judge.
func (j *judge) change(f func(*judge)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j)
}

// lab is a relay on loopback, with a destination that takes what comes.
type lab struct {
	testing.TB
	*Relay
	judge  *judge
	at     netip.AddrPort
	target *net.TCPListener
	taken  chan *net.TCPConn // by the destination
	denied chan Denial
	faults chan any
	port   int // of the next client, 0: the kernel chooses
	to     func() netip.AddrPort
	led    atomic.Pointer[func(*net.TCPConn) (netip.AddrPort, error)]
}

// newLab makes a lab. A hello has much time but where change says otherwise: the machine may be slow.
func newLab(t testing.TB, limits corefile.RelayLimits, change ...func(*Options)) *lab {
	l := &lab{TB: t, taken: make(chan *net.TCPConn, 20000), denied: make(chan Denial, 20000), faults: make(chan any, 100), judge: &judge{
		verdict: policy.CheckFlow, named: policy.CheckFlow,
		pods:    map[netip.Addr]policy.PodRef{netip.MustParseAddr("127.0.1.1"): podA, netip.MustParseAddr("127.0.1.2"): podB},
		granted: map[policy.PodRef][]string{podA: {"good.test", "also.test"}, podB: {"other.test"}},
	}}
	target, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	fatal.If(t, err)
	l.target = target
	l.to = func() netip.AddrPort { return addrPort(target.Addr()) }
	go func() {
		for {
			c, err := target.AcceptTCP()
			if err != nil {
				return
			}
			l.taken <- c
		}
	}()
	o := Options{Judge: l.judge, Limits: limits, Denied: func(d Denial) { l.denied <- d }, Protect: l.protect, helloTimeout: time.Minute,
		Original: func(c *net.TCPConn) (netip.AddrPort, error) { return (*l.led.Load())(c) }}
	for _, f := range change {
		f(&o)
	}
	l.Relay = New(o)
	l.lead(func(*net.TCPConn) (netip.AddrPort, error) { return l.to(), nil })
	listener, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.2:0"))
	fatal.If(t, err)
	l.at = addrPort(listener.Addr())
	go l.Serve(listener)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.Close(ctx)
		_ = target.Close()
		if s := l.Stats(); s.Connections != 0 || s.Hellos != 0 {
			t.Errorf("after the end: %+v", s)
		}
		if len(l.shares.pods) > 0 {
			t.Errorf("pods with a share: %v", l.shares.pods)
		}
	})
	return l
}

// lead sets what the original destination is.
func (l *lab) lead(f func(*net.TCPConn) (netip.AddrPort, error)) { l.led.Store(&f) }

// refused connects to the relay, and expects a reset at once.
func (l *lab) refused(from ...string) {
	l.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(append(from, "127.0.1.1")[0])}}
	c, err := d.Dial("tcp", l.at.String())
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if !errors.Is(err, unix.ECONNRESET) {
		l.Errorf("%v, want a reset", err)
	}
}

func (l *lab) protect(_ string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			l.faults <- r
		}
	}()
	f()
	return true
}

// dial connects to the relay from a pod, podA's address without one.
func (l *lab) dial(from ...string) *net.TCPConn {
	l.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(append(from, "127.0.1.1")[0]), Port: l.port}}
	if l.port > 0 {
		l.port++
	}
	c, err := d.Dial("tcp", l.at.String())
	fatal.If(l, err)
	l.Cleanup(func() { reset(c.(*net.TCPConn)) })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// accepted returns the next connection of the destination.
func (l *lab) accepted() *net.TCPConn {
	l.Helper()
	select {
	case c := <-l.taken:
		l.Cleanup(func() { reset(c) })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	case d := <-l.denied:
		l.Fatal("denied: ", d)
	case <-time.After(10 * time.Second):
		l.Fatal("nothing arrived")
	}
	return nil
}

// denial returns the next denial.
func (l *lab) denial() Denial {
	l.Helper()
	select {
	case d := <-l.denied:
		return d
	case <-time.After(10 * time.Second):
		l.Fatal("nothing was denied")
	}
	return Denial{}
}

// quiet checks that nothing arrived at the destination.
func (l *lab) quiet() {
	l.Helper()
	time.Sleep(20 * time.Millisecond)
	if n := len(l.taken); n > 0 {
		l.Errorf("%d connections arrived at the destination", n)
	}
}

// isReset tells whether a connection ends with a reset.
func isReset(c net.Conn) bool {
	_, err := io.Copy(io.Discard, c)
	return errors.Is(err, unix.ECONNRESET)
}

// pair returns both ends of a relayed connection that sent the hello of good.test.
func (l *lab) pair() (client, server *net.TCPConn) {
	l.Helper()
	client = l.dial()
	sent := helloFor("good.test")
	fatal.If(l, write(client, sent))
	server = l.accepted()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(server, got)
	fatal.If(l, err)
	if string(got) != string(sent) {
		l.Fatal("the destination got another hello")
	}
	return client, server
}

var netipAddrPort = netip.MustParseAddrPort

func bounds(connections, ofPod, hellos, hellosOfPod int) corefile.RelayLimits {
	return corefile.RelayLimits{Connections: connections, ConnectionsPerPod: ofPod, Hellos: hellos, HellosPerPod: hellosOfPod}
}
