package nflog

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// TestPacketsBeforeTheGroupIsSetUp: packets that do not fit between the bind of the group and the rest are lost, and the
// reader goes on.
func TestPacketsBeforeTheGroupIsSetUp(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	for _, words := range [][]string{{"ip", "link", "set", "lo", "up"}, {"nft", "add table inet x"},
		{"nft", "add chain inet x in { type filter hook input priority 0 ; }"}, {"nft", "add rule inet x in udp dport 9 log group 7"}} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", words, err, out)
		}
	}
	k, err := Open(7, slog.New(slog.DiscardHandler))
	fatal.If(t, err)
	fatal.If(t, k.configure(nl.NewRtAttr(cfgCommand, nl.Uint8Attr(cmdBind))))
	sink, err := net.ListenPacket("udp", "127.0.0.1:9")
	fatal.If(t, err)
	defer sink.Close()
	c, err := net.Dial("udp", "127.0.0.1:9")
	fatal.If(t, err)
	defer c.Close()
	for range 20000 {
		_, _ = c.Write(make([]byte, 1000))
	}
	ctx, stop := context.WithCancel(t.Context())
	came, ended := make(chan Packet, 1<<16), make(chan error, 1)
	go func() { ended <- k.Packets(ctx, func(p Packet) { came <- p }) }()
	for until := time.Now().Add(time.Minute); len(came) == 0; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the reader ended: %v, by a lack of room: %v", err, errors.Is(err, syscall.ENOBUFS))
		default:
		}
		if time.Now().After(until) {
			t.Fatal("no packet came")
		}
		_, _ = c.Write([]byte("x"))
	}
	if p := <-came; p.Protocol != unix.IPPROTO_UDP || k.Lost() == 0 {
		t.Errorf("%+v came, lost %d times", p, k.Lost())
	}
	stop()
	fatal.If(t, <-ended)
}
