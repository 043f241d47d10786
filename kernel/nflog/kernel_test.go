package nflog

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

const group = 7

// inKernel gives the test's thread a network namespace whose loopback logs packets to
// port 9 (discard, RFC 863).
func inKernel(t *testing.T) {
	t.Helper()
	netns.Own(t)
	for _, line := range []string{
		"ip link set lo up",
		"nft add table inet x",
		"nft add chain inet x in { type filter hook input priority 0 ; }",
		`nft add rule inet x in udp dport 9 log prefix "seen " group 7`,
	} {
		words := strings.Fields(line)
		if strings.Contains(line, "prefix") {
			words = []string{"nft", strings.TrimPrefix(line, "nft ")}
		}
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

func open(t *testing.T, log *slog.Logger) *Kernel {
	t.Helper()
	r, err := Open(group, log)
	fatal.If(t, err)
	return r
}

// reader reads a group until it is stopped.
type reader struct {
	*Kernel
	packets chan Packet
	stop    func()
	ended   chan error
}

func read(r *Kernel) *reader {
	ctx, stop := context.WithCancel(context.Background())
	x := &reader{Kernel: r, packets: make(chan Packet, 4096), stop: stop, ended: make(chan error, 1)}
	go func() { x.ended <- r.Packets(ctx, func(p Packet) { x.packets <- p }) }()
	return x
}

func (x *reader) close(t *testing.T) {
	t.Helper()
	x.stop()
	if err := <-x.ended; err != nil {
		t.Error(err)
	}
	x.Close()
}

// sender sends to a socket without a reader.
func sender(t *testing.T) net.Conn {
	t.Helper()
	sink, err := net.ListenPacket("udp", "127.0.0.1:9")
	fatal.If(t, err)
	t.Cleanup(func() { sink.Close() })
	c, err := net.Dial("udp", "127.0.0.1:9")
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// first sends until a packet comes: the group may not be bound yet.
func (x *reader) first(t *testing.T, c net.Conn, limit time.Duration) (Packet, bool) {
	t.Helper()
	for until := time.Now().Add(limit); time.Now().Before(until); {
		_, _ = c.Write([]byte("x"))
		select {
		case p := <-x.packets:
			return p, true
		case <-time.After(20 * time.Millisecond):
		}
	}
	return Packet{}, false
}

func TestKernelHandsOver(t *testing.T) {
	t.Parallel()
	inKernel(t)
	c := sender(t)
	x := read(open(t, slog.Default()))
	defer x.close(t)
	before := time.Now()
	p, ok := x.first(t, c, time.Minute)
	if !ok || p.Prefix != "seen " || p.Source.String() != "127.0.0.1" || p.Destination.String() != "127.0.0.1:9" || p.Protocol != unix.IPPROTO_UDP || p.Time.Before(before) {
		t.Fatalf("%v %+v", ok, p)
	}
	for i := range 100 {
		_, _ = c.Write(make([]byte, i))
	}
	for i := range 100 {
		select {
		case <-x.packets:
		case <-time.After(time.Minute):
			t.Fatalf("%d packets came of 100", i)
		}
	}
	if x.Lost() != 0 {
		t.Errorf("%d were lost", x.Lost())
	}
}

// TestGroupOfAnotherAgent: an agent waits until its predecessor releases the group, and
// reports it.
func TestGroupOfAnotherAgent(t *testing.T) {
	t.Parallel()
	inKernel(t)
	c := sender(t)
	one := read(open(t, slog.Default()))
	defer one.Close()
	if _, ok := one.first(t, c, time.Minute); !ok {
		t.Fatal("nothing came")
	}
	var log lines
	next := read(open(t, slog.New(slog.NewTextHandler(&log, nil))))
	defer next.close(t)
	fatal.Await(t, "it does not say that it waits", func() bool { return strings.Contains(log.String(), "releases") })
	if _, ok := next.first(t, c, 300*time.Millisecond); ok {
		t.Error("both have the group")
	}
	one.stop()
	if err := <-one.ended; err != nil {
		t.Error(err)
	}
	if _, ok := next.first(t, c, time.Minute); !ok {
		t.Error("the next never gets the group")
	}
}

// TestStoppedWhileItWaits: an agent that ends while another has the group just ends.
func TestStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	inKernel(t)
	c := sender(t)
	one := read(open(t, slog.Default()))
	defer one.close(t)
	if _, ok := one.first(t, c, time.Minute); !ok {
		t.Fatal("nothing came")
	}
	next := read(open(t, slog.New(slog.DiscardHandler)))
	next.close(t)
}

// flood sends more than the kernel has room for.
func flood(c net.Conn) {
	for range 20000 {
		_, _ = c.Write(make([]byte, 1000))
	}
}

// TestLossesAreReported: a slow reader loses packets and continues.
func TestLossesAreReported(t *testing.T) {
	t.Parallel()
	inKernel(t)
	c := sender(t)
	x := read(open(t, slog.Default()))
	if _, ok := x.first(t, c, time.Minute); !ok {
		t.Fatal("nothing came")
	}
	flood(c) // until the channel is full the reader works
	for until := time.Now().Add(time.Minute); x.Lost() == 0 && time.Now().Before(until); {
		for len(x.packets) > 0 {
			<-x.packets
		}
		time.Sleep(time.Millisecond)
	}
	if x.Lost() == 0 {
		t.Error("nothing was lost")
	}
	for quiet := false; !quiet; {
		select {
		case <-x.packets:
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	if _, ok := x.first(t, c, time.Minute); !ok {
		t.Error("it does not go on")
	}
	x.close(t)
}

// TestPacketsBeforeTheGroupIsSetUp: packets that do not fit between the bind of the group and the rest are lost, and the
// reader goes on.
func TestPacketsBeforeTheGroupIsSetUp(t *testing.T) {
	t.Parallel()
	inKernel(t)
	k := open(t, slog.New(slog.DiscardHandler))
	fatal.If(t, k.configure(nl.NewRtAttr(cfgCommand, nl.Uint8Attr(cmdBind))))
	c := sender(t)
	flood(c)
	x := read(k)
	if p, ok := x.first(t, c, time.Minute); !ok || p.Protocol != unix.IPPROTO_UDP || x.Lost() == 0 {
		t.Errorf("%+v came: %v, lost %d times", p, ok, x.Lost())
	}
	x.close(t)
}

// lines is a buffer for several goroutines.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestTheKernelNamesTheOwner: a packet of a socket of this machine has its owner where it is sent, and
// has none where it is received.
func TestTheKernelNamesTheOwner(t *testing.T) {
	t.Parallel()
	inKernel(t)
	for _, line := range []string{
		"add chain inet x out { type filter hook output priority 0 ; }",
		`add rule inet x out udp dport 9 log prefix "sent " group 7`,
	} {
		if out, err := exec.Command("nft", line).CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %s", line, err, out)
		}
	}
	c := sender(t)
	x := read(open(t, slog.Default()))
	defer x.close(t)
	seen := map[string]bool{}
	for until := time.Now().Add(time.Minute); len(seen) < 2 && time.Now().Before(until); {
		p, ok := x.first(t, c, time.Minute)
		if !ok {
			t.Fatal("no packet came")
		}
		if sent := p.Prefix == "sent "; sent != (p.Owner != nil) || sent && (p.Owner.UID != uint32(os.Getuid()) || p.Owner.GID != uint32(os.Getgid())) {
			t.Fatalf("%q has the owner %+v", p.Prefix, p.Owner)
		}
		seen[p.Prefix] = true
	}
}
