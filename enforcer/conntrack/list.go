package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/namegate/namegate/enforcer/nfattr"
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

// Flows implements Interface.
func (k *Kernel) Flows(q Query) ([]Flow, error) {
	var out []Flow
	for _, sources := range byFamily(q.Sources) {
		if len(sources) == 0 {
			continue
		}
		q.Sources = sources
		var err error
		if out, err = k.list(out, q); err != nil {
			return nil, fmt.Errorf("list connections of %s: %w", sources[0], err)
		}
	}
	return out, nil
}

// list appends the connections of a query, whose sources are of one family. A table of
// 100,000 is 20 MB of messages, few of which anybody asked for: they are rejected by
// their source's bytes.
func (k *Kernel) list(out []Flow, q Query) ([]Flow, error) {
	wanted := make(map[netip.Addr]bool, len(q.Sources))
	for _, a := range q.Sources {
		wanted[a] = true
	}
	family := uint8(unix.AF_INET)
	if q.Sources[0].Is6() {
		family = unix.AF_INET6
	}
	err := k.lister.List(nl.IPCTNL_MSG_CT_GET|unix.NFNL_SUBSYS_CTNETLINK<<8, family, q.append, func(msg []byte) {
		if a, ok := source(msg); ok && !wanted[a] {
			return
		}
		if f, ok := parseFlow(msg[nfattr.HeaderLen:]); ok && wanted[f.Src.Addr()] && q.marked(f) {
			out = append(out, f)
		}
	})
	return out, err
}

// append writes a query's filters. The kernel looks through its table either way; what
// it leaves out itself costs no message. Kernels that do not know a filter say more
// than was asked for.
func (q Query) append(b []byte) []byte {
	if q.Mask != 0 {
		b = nfattr.AppendUint32(b, nl.CTA_MARK, q.Mark&q.Mask)
		b = nfattr.AppendUint32(b, ctaMarkMask, q.Mask)
	}
	if first := q.Sources[0]; len(q.Sources) == 1 && first.Is4() {
		b = appendSource(b, first)
	}
	return b
}

// appendSource asks for one source's connections alone. Only for IPv4: Linux up to
// at least 6.18 takes the comparison of IPv6 addresses the wrong way round here
// and returns every connection but those asked for.
func appendSource(b []byte, a netip.Addr) []byte {
	b, tuple := nfattr.Begin(b, nl.CTA_TUPLE_ORIG)
	b, ip := nfattr.Begin(b, nl.CTA_TUPLE_IP)
	b = nfattr.Append(b, nl.CTA_IP_V4_SRC, a.AsSlice())
	nfattr.End(b, ip)
	nfattr.End(b, tuple)
	b, filter := nfattr.Begin(b, ctaFilter)
	// The flags are in the host's order, unlike the rest.
	b = nfattr.Append(b, ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterFlagSrc))
	nfattr.End(b, filter)
	return b
}
