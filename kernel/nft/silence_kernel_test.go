package nft_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// solicitation is a packet of IPv6 that looks like discovery (RFC 4861 §4.3) from a
// made-up source, but for its hop limit.
func solicitation(source, to netip.Addr) []byte {
	b := make([]byte, 40+24)
	b[0], b[6], b[7] = 6<<4, unix.IPPROTO_ICMPV6, 64
	binary.BigEndian.PutUint16(b[4:], 24)
	copy(b[8:], source.AsSlice())
	copy(b[24:], to.AsSlice())
	b[40] = 135
	sum := uint32(24 + unix.IPPROTO_ICMPV6) // of the pseudo-header of RFC 8200 §8.1, and the message
	for i := 8; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[42:], ^uint16(sum))
	return b
}

// TestForgedSourcesDoNotSuppressLogs: packets that the home check passes, because they
// are not forwarded, are denied and take no part of the pods' share of the log.
func TestForgedSourcesDoNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	a, b := w.Pod("a"), w.Pod("b")
	state := nft.State{
		Selected: []netip.Addr{a.Addr4, a.Addr6, b.Addr4, b.Addr6}, Dropped: []netip.Addr{b.Addr4, b.Addr6}, Ifaces: []string{a.Iface, b.Iface},
	}
	for _, p := range []*lab.Pod{a, b} {
		state.Pods = append(state.Pods, []netip.Addr{p.Addr4, p.Addr6})
		state.Homes = append(state.Homes, nft.Home{Iface: p.Iface, Addr: p.Addr4}, nft.Home{Iface: p.Iface, Addr: p.Addr6})
	}
	node := netip.MustParseAddr("fd00:77::1")
	fatal.If(t, w.Node.Do(func() error { return w.tables.Apply(context.Background(), state) }))
	const flood = 3000
	err := b.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range flood {
			source := netip.MustParseAddr(fmt.Sprintf("fe80::1:%x", i+1))
			if err := unix.Sendto(fd, solicitation(source, node), 0, &unix.SockaddrInet6{Addr: node.As16()}); err != nil {
				return err
			}
		}
		return nil
	})
	fatal.If(t, err)
	for until := time.Now().Add(time.Minute); w.denied() < flood && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := w.denied(); n < flood {
		t.Fatalf("%d packets were denied, want %d", n, flood)
	}
	if text, err := w.Node.Run("nft", "list set inet namegate told6"); err != nil || strings.Contains(text, "fe80::1:") {
		t.Errorf("sources that nobody has are remembered: %d of them, %v", strings.Count(text, "fe80::1:"), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.heard); n != 0 {
		t.Errorf("%d packets from sources that nobody has were logged", n)
	}
}

// TestAuditedScanDoesNotSuppressLogs: a pod that tries every port of many addresses only
// remembers its logged packets, and leaves room for the others.
func TestAuditedScanDoesNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	c, err := w.Pod("c").ListenPacket("udp4", "0.0.0.0:0")
	fatal.If(t, err)
	defer c.Close()
	began := time.Now()
	for i := range 5000 {
		if _, err := c.WriteTo([]byte("x"), net4(netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(1000+i)))); err != nil {
			t.Fatal(err)
		}
	}
	text, err := w.Node.Run("nft", "list set inet namegate watched4")
	most := 100 + int(20*time.Since(began).Seconds()) + 1
	if n := strings.Count(text, "198.51.100.7"); err != nil || n < 100 || n > most {
		t.Errorf("%d connections of a pod are remembered, want 100 to %d: %v", n, most, err)
	}
	w.expect("d", "tcp", "198.51.100.1:80", lab.Answered)
	w.same("logged of d", w.logged("d", 1), "namegate audited tcp 198.51.100.1:80")
	// A packet that was not logged for lack of a share is logged later.
	w.loggedSoFar("c")
	w.logged("c", 0)
	again, err := w.Pod("c").ListenPacket("udp4", "0.0.0.0:0") // one that is connected reports that nothing listens
	fatal.If(t, err)
	defer again.Close()
	fatal.Await(t, "the growth of the share, by twenty a second", func() bool {
		_, err := again.WriteTo([]byte("x"), net4(netip.MustParseAddrPort("198.51.100.7:5999")))
		fatal.If(t, err)
		return len(w.log("c")) > 0
	})
	w.same("logged of c", w.logged("c", 1), "namegate audited udp 198.51.100.7:5999")
}
