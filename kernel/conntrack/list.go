package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

func (q Query) marked(mark uint32) bool { return mark&q.Mask == q.Mark&q.Mask }

// Flows implements Interface.
func (k *Kernel) Flows(q Query) (out []Flow, err error) {
	if len(q.Sources)+len(q.Peers) == 0 {
		return nil, nil
	}
	family := uint8(unix.AF_UNSPEC)
	if len(q.Peers) == 1 && q.Peers[0].Is4() || len(q.Sources) == 1 && q.Sources[0].Is4() {
		family = unix.AF_INET // as the filter
	}
	wanted, reached := setOf(q.Sources), setOf(q.Peers)
	err = k.list(family, q.append, func(c *tracked) {
		if q.marked(c.Mark) && (len(wanted) == 0 || wanted[c.Src.Addr()]) && (len(reached) == 0 || reached[c.Peer.Addr()]) {
			out = append(out, c.kept())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list connections of %s: %w", slices.Concat(q.Sources, q.Peers)[0], err)
	}
	return out, nil
}

func setOf(addrs []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		set[a] = true
	}
	return set
}

// Established implements Interface. Kernels before 5.15 do not know the filter of the status
// and return more connections.
func (k *Kernel) Established(mark, mask uint32, each func(f *Flow, idle time.Duration)) error {
	t, q := readTimeouts(), Query{Mark: mark, Mask: mask}
	err := k.list(unix.AF_UNSPEC, func(b []byte) []byte {
		b = nfattr.AppendUint32(q.append(b), nl.CTA_STATUS, seenReply)
		return nfattr.AppendUint32(b, ctaStatusMask, seenReply)
	}, func(c *tracked) {
		if c.established && q.marked(c.Mark) {
			each(&c.Flow, c.idle(t))
		}
	})
	if err != nil {
		return fmt.Errorf("list established connections: %w", err)
	}
	return nil
}

// list calls each with the connections of a family that pass the filters.
func (k *Kernel) list(family uint8, filters func([]byte) []byte, each func(*tracked)) error {
	var c tracked
	return k.lister.List(message(nl.IPCTNL_MSG_CT_GET), family, filters, func(msg []byte) {
		var ok bool
		if c, ok = parse(msg); ok {
			each(&c)
		}
	})
}

// append writes a query's filters. The kernel scans its table either way; a connection
// that it filters itself costs no message. Kernels that do not know a filter return more
// connections.
func (q Query) append(b []byte) []byte {
	if q.Mask != 0 {
		b = nfattr.AppendUint32(b, nl.CTA_MARK, q.Mark&q.Mask)
		b = nfattr.AppendUint32(b, ctaMarkMask, q.Mask)
	}
	switch {
	case len(q.Peers) == 1 && q.Peers[0].Is4():
		b = appendSource(b, nl.CTA_TUPLE_REPLY, ctaFilterReplyFlags, q.Peers[0])
	case len(q.Sources) == 1 && q.Sources[0].Is4():
		b = appendSource(b, nl.CTA_TUPLE_ORIG, ctaFilterOrigFlags, q.Sources[0])
	}
	return b
}

// appendSource filters for connections with this source in one direction, a tuple with
// its flags. Only for IPv4: Linux up to at least 6.18 inverts the comparison of IPv6
// addresses here and returns every other connection instead.
func appendSource(b []byte, direction, flags int, a netip.Addr) []byte {
	b, tuple := nfattr.Begin(b, direction)
	b, ip := nfattr.Begin(b, nl.CTA_TUPLE_IP)
	b = nfattr.Append(b, nl.CTA_IP_V4_SRC, a.AsSlice())
	nfattr.End(b, ip)
	nfattr.End(b, tuple)
	b, filter := nfattr.Begin(b, ctaFilter)
	// The flags are in the host's order, unlike the rest.
	b = nfattr.Append(b, flags, binary.NativeEndian.AppendUint32(nil, filterFlagSrc))
	nfattr.End(b, filter)
	return b
}
