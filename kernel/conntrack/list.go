package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// byFamily splits addresses into IPv4's and IPv6's.
func byFamily(all []netip.Addr) [2][]netip.Addr {
	var out [2][]netip.Addr
	for _, a := range all {
		i := 0
		if a.Is6() {
			i = 1
		}
		out[i] = append(out[i], a)
	}
	return out
}

func (q Query) marked(f Flow) bool { return f.Mark&q.Mask == q.Mark&q.Mask }

// Flows implements Interface. Where both families are asked for one look at the table
// does: of a small one the look is what costs.
func (k *Kernel) Flows(q Query) ([]Flow, error) {
	sources, peers := byFamily(q.Sources), byFamily(q.Peers)
	var asked []Query
	for i := range sources {
		if len(sources[i]) > 0 && (len(q.Peers) == 0 || len(peers[i]) > 0) {
			asked = append(asked, Query{Sources: sources[i], Peers: peers[i], Mark: q.Mark, Mask: q.Mask})
		}
	}
	if len(asked) == 2 {
		asked = []Query{q}
	}
	var out []Flow
	for _, part := range asked {
		var err error
		if out, err = k.list(out, part); err != nil {
			return nil, fmt.Errorf("list connections of %s: %w", part.Sources[0], err)
		}
	}
	return out, nil
}

// list appends the connections of a query of one family or both. A table of
// 100,000 is 20 MB of messages, few of which anybody asked for: they are rejected by
// their source's bytes.
func (k *Kernel) list(out []Flow, q Query) ([]Flow, error) {
	wanted := make(map[netip.Addr]bool, len(q.Sources))
	for _, a := range q.Sources {
		wanted[a] = true
	}
	reached := make(map[netip.Addr]bool, len(q.Peers))
	for _, a := range q.Peers {
		reached[a] = true
	}
	err := k.lister.List(nl.IPCTNL_MSG_CT_GET|unix.NFNL_SUBSYS_CTNETLINK<<8, q.family(), q.append, func(msg []byte) {
		if a, ok := source(msg); ok && !wanted[a] {
			return
		}
		if f, ok := parseFlow(msg[nfattr.HeaderLen:]); ok && wanted[f.Src.Addr()] && q.marked(f) && (len(reached) == 0 || reached[f.Peer.Addr()]) {
			out = append(out, f)
		}
	})
	return out, err
}

// family is that of all sources, else every one.
func (q Query) family() uint8 {
	of := byFamily(q.Sources)
	switch {
	case len(of[1]) == 0:
		return unix.AF_INET
	case len(of[0]) == 0:
		return unix.AF_INET6
	}
	return unix.AF_UNSPEC
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
