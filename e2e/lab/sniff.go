package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Sniffer records which addresses packets that reached a host were for: what
// arrived, whatever any program says.
type Sniffer struct {
	file    *os.File
	done    chan struct{}
	markers atomic.Uint32

	mu     sync.Mutex
	seen   map[netip.Addr]int
	flows  map[Arrival]int
	tokens map[string]int
}

// tokenMark begins a token, which has tokenLen bytes.
const (
	tokenMark = "ngtoken:"
	tokenLen  = len(tokenMark) + 8
)

// Token returns 16 bytes that a Sniffer knows again wherever they stand in a packet.
func Token(n uint32) []byte { return fmt.Appendf(nil, tokenMark+"%08x", n) }

// Sniff starts recording the IP packets that come in on an interface of a host.
func (h *Host) Sniff(iface string) (*Sniffer, error) {
	s := &Sniffer{done: make(chan struct{}), seen: map[netip.Addr]int{}, flows: map[Arrival]int{}, tokens: map[string]int{}}
	err := h.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		index, err := ifindex(fd, iface)
		if err != nil {
			unix.Close(fd)
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index}); err != nil {
			unix.Close(fd)
			return err
		}
		// Room for a burst: a packet that is lost here is a test that lies.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		s.file = os.NewFile(uintptr(fd), "sniffer")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sniff %s of %s: %w", iface, h.Name, err)
	}
	go s.read()
	return s, nil
}

func ifindex(fd int, iface string) (int, error) {
	req, err := unix.NewIfreq(iface)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int(req.Uint32()), nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func (s *Sniffer) read() {
	defer close(s.done)
	buf := make([]byte, 2048)
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n int
		var from unix.Sockaddr
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			n, from, readErr = unix.Recvfrom(int(fd), buf, 0)
			return readErr != unix.EAGAIN
		})
		if err != nil || readErr != nil {
			return
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		s.mu.Lock()
		if dst, ok := destination(buf[:n]); ok {
			s.seen[dst]++
		}
		if f, ok := arrival(buf[:n]); ok {
			s.flows[f]++
		}
		if i := bytes.Index(buf[:n], []byte(tokenMark)); i >= 0 && i+tokenLen <= n {
			s.tokens[string(buf[i:i+tokenLen])]++
		}
		s.mu.Unlock()
	}
}

// destination returns where an IP packet goes. The link's own neighbour discovery
// is not counted.
func destination(p []byte) (netip.Addr, bool) {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(p[16:20])), true
	case len(p) >= 41 && p[0]>>4 == 6:
		to := netip.AddrFrom16([16]byte(p[24:40]))
		own := to.IsLinkLocalUnicast() || to.IsMulticast() || to == netip.MustParseAddr(worldOut6)
		return to, !own || p[6] != unix.IPPROTO_ICMPV6
	}
	return netip.Addr{}, false
}

// Saw returns how many packets for an address arrived so far.
func (s *Sniffer) Saw(a netip.Addr) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[a]
}

// Arrival is what packets of one sender for one port have in common. Without ports
// (ICMP, say) Port is 0.
type Arrival struct {
	From, To netip.Addr
	// Protocol is its number.
	Protocol byte
	Port     uint16
}

// SawFlow returns how many packets of a kind arrived so far.
func (s *Sniffer) SawFlow(f Arrival) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[f]
}

// arrival reads a packet without options or extension headers.
func arrival(p []byte) (Arrival, bool) {
	var f Arrival
	switch {
	case len(p) >= 24 && p[0] == 0x45:
		f = Arrival{From: netip.AddrFrom4([4]byte(p[12:16])), To: netip.AddrFrom4([4]byte(p[16:20])), Protocol: p[9]}
		p = p[20:]
	case len(p) >= 44 && p[0]>>4 == 6:
		f = Arrival{From: netip.AddrFrom16([16]byte(p[8:24])), To: netip.AddrFrom16([16]byte(p[24:40])), Protocol: p[6]}
		p = p[40:]
	default:
		return f, false
	}
	switch f.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		f.Port = binary.BigEndian.Uint16(p[2:])
	}
	return f, true
}

// SawToken returns how many packets, of whatever kind, carried a token so far; of
// those with several the first counts.
func (s *Sniffer) SawToken(token []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[string(token)]
}

// Settle waits until every packet is recorded that arrived before the call: it
// lets another host send one more, to an address of its own, and waits for that.
func (s *Sniffer) Settle(from *Host) error {
	n := s.markers.Add(1)
	marker := netip.MustParseAddr(fmt.Sprintf("2001:db8:ffff::%x:%x", n>>16, n&0xffff))
	return settle(marker, from, []byte("marker"), func() bool { return s.Saw(marker) > 0 })
}

// SettleAt is Settle for a sniffer of a host that has an address of its own, which
// another host reaches.
func (s *Sniffer) SettleAt(to netip.Addr, from *Host) error {
	token := Token(s.markers.Add(1))
	return settle(to, from, token, func() bool { return s.SawToken(token) > 0 })
}

// settle sends packets until one has arrived.
func settle(to netip.Addr, from *Host, payload []byte, arrived func() bool) error {
	for until := time.Now().Add(Limit); time.Now().Before(until); {
		// A socket for each: a refusal of one would be the next one's error.
		c, err := from.Dial("udp", netip.AddrPortFrom(to, 9).String(), time.Second)
		if err != nil {
			return err
		}
		_, err = c.Write(payload)
		c.Close()
		if err != nil {
			return err
		}
		for range 50 {
			if arrived() {
				return nil
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return fmt.Errorf("a packet to %s never arrived", to)
}

// Close ends the recording.
func (s *Sniffer) Close() {
	s.file.Close()
	<-s.done
}
