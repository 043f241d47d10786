package nft_test

import (
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
	// The pseudo-header of RFC 8200 §8.1, and the message.
	binary.BigEndian.PutUint16(b[42:], checksum(24+unix.IPPROTO_ICMPV6, b[8:]))
	return b
}

// TestForgedSourcesDoNotSuppressLogs: packets that the home check passes, because they
// are not forwarded, are denied and take no part of the pods' share of the log.
func TestForgedSourcesDoNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	state := w.state
	state.Audited = nil
	for _, p := range []*lab.Pod{w.Pod("a"), w.Pod("b")} {
		state.Ifaces = append(state.Ifaces, p.Iface)
		state.Homes = append(state.Homes, nft.Home{Iface: p.Iface, Addr: p.Addr4}, nft.Home{Iface: p.Iface, Addr: p.Addr6})
	}
	node := netip.MustParseAddr("fd00:77::1")
	w.apply(state)
	const flood = 3000
	fatal.If(t, w.Pod("b").Do(func() error {
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
	}))
	fatal.Await(t, "each packet is denied", func() bool { return w.denied() >= flood })
	if text, err := w.Node.Run("nft", "list set inet namegate told6"); err != nil || strings.Contains(text, "fe80::1:") {
		t.Errorf("sources that nobody has are remembered: %d of them, %v", strings.Count(text, "fe80::1:"), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.heard); n != 0 {
		t.Errorf("%d packets from sources that nobody has were logged", n)
	}
}

// TestAuditedScanDoesNotSuppressLogs: a pod that tries many ports is remembered by its logged
// packets alone, which leaves room for the others. Beyond its share only lines are lost.
func TestAuditedScanDoesNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	began := time.Now()
	w.floods("c", 5000)
	for range 100 {
		w.expect("c", "udp", "198.51.100.1:80", lab.Answered)
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
