package conntrack_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
)

// podAddr is the source of one of the pods of fillTable.
func podAddr(v6 bool, pod int) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 7, 14: byte(pod >> 8), 15: byte(pod)})
	}
	return netip.AddrFrom4([4]byte{10, 7, byte(pod >> 8), byte(pod)})
}

// fillTable tracks connections of many pods, a given number each, without a packet: it
// writes them to the kernel. A connection has the mark if admitted says so.
func fillTable(t testing.TB, v6 bool, pods, each int, admitted func(pod int) bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	fatal.If(t, err)
	defer unix.Close(fd)
	var batch []byte
	flush := func() {
		// The last one asks for an acknowledgement; an error comes without.
		last := lastMessage(batch)
		flags := binary.NativeEndian.Uint16(batch[last+6:])
		binary.NativeEndian.PutUint16(batch[last+6:], flags|unix.NLM_F_ACK)
		fatal.If(t, unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
		buf := make([]byte, 8192)
		n, _, err := unix.Recvfrom(fd, buf, 0)
		fatal.If(t, err)
		if errno := int32(binary.NativeEndian.Uint32(buf[16:])); n < 20 || errno != 0 {
			t.Fatalf("fill the table: error %d (is nf_conntrack_max too small?)", errno)
		}
		batch = batch[:0]
	}
	for pod := range pods {
		for i := range each {
			mark := uint32(others)
			if admitted(pod) {
				mark |= ours
			}
			batch = appendFlow(batch, v6, podAddr(v6, pod), 1024+i, mark)
			if len(batch) > 32<<10 {
				flush()
			}
		}
	}
	if len(batch) > 0 {
		flush()
	}
}

func lastMessage(batch []byte) int {
	at := 0
	for {
		next := at + int(binary.NativeEndian.Uint32(batch[at:]))
		if next >= len(batch) {
			return at
		}
		at = next
	}
}

// appendFlow appends the request to track one connection of UDP.
func appendFlow(b []byte, v6 bool, src netip.Addr, port int, mark uint32) []byte {
	dst, family := netip.MustParseAddr("192.0.2.1"), byte(unix.AF_INET)
	if v6 {
		dst, family = netip.MustParseAddr("2001:db8::1"), unix.AF_INET6
	}
	b, begin := nfattr.AppendHeader(b, nl.IPCTNL_MSG_CT_NEW|unix.NFNL_SUBSYS_CTNETLINK<<8, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 1)
	b[begin+16] = family
	b = appendTuple(b, nl.CTA_TUPLE_ORIG, src, dst, port, 443)
	b = appendTuple(b, nl.CTA_TUPLE_REPLY, dst, src, 443, port)
	b = nfattr.AppendUint32(b, nl.CTA_TIMEOUT, 600)
	b = nfattr.AppendUint32(b, nl.CTA_MARK, mark)
	nfattr.EndMessage(b, begin)
	return b
}

func appendTuple(b []byte, typ int, src, dst netip.Addr, sport, dport int) []byte {
	srcType, dstType := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if src.Is6() {
		srcType, dstType = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	b, tuple := nfattr.Begin(b, typ)
	b, ip := nfattr.Begin(b, nl.CTA_TUPLE_IP)
	b = nfattr.Append(b, srcType, src.AsSlice())
	b = nfattr.Append(b, dstType, dst.AsSlice())
	nfattr.End(b, ip)
	b, proto := nfattr.Begin(b, nl.CTA_TUPLE_PROTO)
	b = nfattr.AppendUint8(b, nl.CTA_PROTO_NUM, unix.IPPROTO_UDP)
	b = nfattr.Append(b, nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, uint16(sport)))
	b = nfattr.Append(b, nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, uint16(dport)))
	nfattr.End(b, proto)
	nfattr.End(b, tuple)
	return b
}

// TestKernelAndFakeAgree asks both for connections of random sources of a full table.
func TestKernelAndFakeAgree(t *testing.T) {
	t.Parallel()
	const pods, each = 40, 3
	admitted := func(pod int) bool { return pod%3 == 0 }
	k, f := kernel(t), conntrack.NewFake()
	dst := map[bool]string{false: "192.0.2.1:443", true: "[2001:db8::1]:443"}
	for v6, to := range dst {
		fillTable(t, v6, pods, each, admitted)
		for pod := range pods {
			for i := range each {
				flow := conntrack.Flow{Protocol: unix.IPPROTO_UDP, Src: netip.AddrPortFrom(podAddr(v6, pod), uint16(1024+i)), Dst: netip.MustParseAddrPort(to), Mark: others}
				if admitted(pod) {
					flow.Mark |= ours
				}
				f.Track(flow)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	masks := []uint32{0, ours, ours, others, ours | others, 1 << 31}
	for range 100 {
		q := conntrack.Query{Mark: r.Uint32N(2) * 0xffffffff, Mask: masks[r.IntN(len(masks))]}
		for range r.IntN(6) {
			q.Sources = append(q.Sources, podAddr(r.IntN(2) == 0, r.IntN(pods+5)))
		}
		var got [2][]string
		for i, seam := range []conntrack.Interface{k, f} {
			all, err := seam.Flows(q)
			fatal.If(t, err)
			got[i] = texts(all...)
			slices.Sort(got[i])
		}
		if diff := cmp.Diff(got[1], got[0]); diff != "" {
			t.Fatalf("%+v (-fake +kernel):\n%s", q, diff)
		}
	}
}
