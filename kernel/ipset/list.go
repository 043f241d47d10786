package ipset

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ask asks for the listing of one set, or with "" of all, and hands each message's
// attributes over.
func (k *Kernel) ask(name string, flags uint32, each func(attrs []byte)) error {
	return k.lister.List(message(nl.IPSET_CMD_LIST), unix.AF_INET, func(b []byte) []byte {
		if b = appendName(b, name); flags != 0 {
			b = nfattr.AppendUint32(b, nl.IPSET_ATTR_FLAGS, flags)
		}
		return b
	}, func(msg []byte) { each(msg[nfattr.HeaderLen:]) })
}

// Each implements Interface.
func (k *Kernel) Each(name string, each func(s Set, entries []Entry)) error {
	var s Set
	var entries []Entry
	err := k.ask(name, 0, func(attrs []byte) {
		// Only the first message of a set has its header.
		if head, _ := parseHead(attrs); head.Name != s.Name {
			s = head
		}
		entries = appendEntries(entries[:0], attrs)
		each(s, entries)
	})
	return wrap("list", cmp.Or(name, "all"), err)
}

// Sizes implements Interface. The kernel reports no changes of sets, so the caller polls:
// a node with 10,000 sets must not notice.
func (k *Kernel) Sizes(names ...string) (map[string]int, error) {
	if len(names) == 0 {
		names = []string{""}
	}
	sizes := map[string]int{}
	for _, n := range names {
		err := k.ask(n, flagListHeader, func(attrs []byte) {
			head, size := parseHead(attrs)
			sizes[head.Name] = size
		})
		if err = wrap("list", cmp.Or(n, "all"), err); err != nil && !IsNotFound(err) {
			return nil, err
		}
	}
	return sizes, nil
}

// parseHead reads the name, type and family of a set, the extensions of its entries, and how many
// there are.
func parseHead(attrs []byte) (s Set, size int) {
	nfattr.Each(attrs, func(typ int, value []byte) {
		switch typ {
		case nl.IPSET_ATTR_SETNAME:
			s.Name = nfattr.String(value)
		case nl.IPSET_ATTR_TYPENAME:
			s.Type = Type(nfattr.String(value))
		case nl.IPSET_ATTR_FAMILY:
			s.IPv6 = len(value) == 1 && value[0] == unix.NFPROTO_IPV6
		case nl.IPSET_ATTR_DATA:
			nfattr.Each(value, func(typ int, value []byte) {
				switch typ {
				case nl.IPSET_ATTR_TIMEOUT:
					s.Timeout = true
				case nl.IPSET_ATTR_ELEMENTS:
					size = int(nfattr.Uint32(value))
				case nl.IPSET_ATTR_CADT_FLAGS:
					flags := nfattr.Uint32(value)
					s.Comment, s.Counters = flags&nl.IPSET_FLAG_WITH_COMMENT != 0, flags&nl.IPSET_FLAG_WITH_COUNTERS != 0
				}
			})
		}
	})
	return s, size
}

// appendEntries appends the entries of one message.
func appendEntries(out []Entry, attrs []byte) []Entry {
	nfattr.Each(attrs, func(typ int, list []byte) {
		if typ != nl.IPSET_ATTR_ADT {
			return
		}
		nfattr.Each(list, func(typ int, data []byte) {
			if typ == nl.IPSET_ATTR_DATA {
				out = append(out, parseEntry(data))
			}
		})
	})
	return out
}

func parseEntry(data []byte) (e Entry) {
	nfattr.Each(data, func(typ int, v []byte) {
		switch {
		case typ == nl.IPSET_ATTR_IP:
			nfattr.Each(v, func(_ int, ip []byte) { e.Addr, _ = netip.AddrFromSlice(ip) })
		case typ == nl.IPSET_ATTR_CIDR && len(v) == 1:
			e.Bits = v[0]
		case typ == nl.IPSET_ATTR_PROTO && len(v) == 1:
			e.Protocol = v[0]
		case typ == nl.IPSET_ATTR_PORT && len(v) == 2:
			e.Port = binary.BigEndian.Uint16(v)
		case typ == nl.IPSET_ATTR_IFACE:
			e.Iface = nfattr.String(v)
		case typ == nl.IPSET_ATTR_TIMEOUT && len(v) == 4:
			e.Timeout = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
		case typ == nl.IPSET_ATTR_COMMENT:
			e.Comment = nfattr.String(v)
		case typ == nl.IPSET_ATTR_PACKETS && len(v) == 8:
			e.Packets = binary.BigEndian.Uint64(v)
		}
	})
	if int(e.Bits) == e.Addr.BitLen() {
		e.Bits = 0
	}
	return e
}
