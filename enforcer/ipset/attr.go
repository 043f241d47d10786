package ipset

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// flagListSetName is IPSET_FLAG_LIST_SETNAME of linux/netfilter/ipset/ip_set.h:
	// list names alone.
	flagListSetName = 1 << 1
	// flagListHeader is IPSET_FLAG_LIST_HEADER of the same: leave entries out.
	flagListHeader = 1 << 2
	// errHashFull is IPSET_ERR_HASH_FULL, the first type-specific error of
	// linux/netfilter/ipset/ip_set_hash.h.
	errHashFull = nl.IPSET_ERR_TYPE_SPECIFIC
	netOrder    = int(nl.NLA_F_NET_BYTEORDER)
	isNested    = unix.NLA_F_NESTED
)

func family(ipv6 bool) uint8 {
	if ipv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// headerAttr renders what a set is created with.
func headerAttr(s Set) *nl.RtAttr {
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|isNested, nil)
	u32 := func(typ int, v uint32) { data.AddChild(nl.NewRtAttr(typ|netOrder, nl.BEUint32Attr(v))) }
	if s.HashSize != 0 {
		u32(nl.IPSET_ATTR_HASHSIZE, s.HashSize)
	}
	if s.MaxElem != 0 {
		u32(nl.IPSET_ATTR_MAXELEM, s.MaxElem)
	}
	if s.Timeout {
		u32(nl.IPSET_ATTR_TIMEOUT, 0)
	}
	if s.Comment {
		u32(nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_FLAG_WITH_COMMENT)
	}
	return data
}

// seconds rounds up: an entry must not end before its deadline.
func seconds(d time.Duration) uint32 {
	return uint32((min(max(d, time.Second), TimeoutMax) + time.Second - 1) / time.Second)
}

func parseEntry(data []byte) Entry {
	var e Entry
	a := nfattr.Parse(data)
	ip := nfattr.Parse(a[nl.IPSET_ATTR_IP])
	for _, typ := range []int{nl.IPSET_ATTR_IPADDR_IPV4, nl.IPSET_ATTR_IPADDR_IPV6} {
		if addr, ok := netip.AddrFromSlice(ip[typ]); ok {
			e.Addr = addr
		}
	}
	if v := a[nl.IPSET_ATTR_PROTO]; len(v) == 1 {
		e.Protocol = v[0]
	}
	if v := a[nl.IPSET_ATTR_PORT]; len(v) == 2 {
		e.Port = binary.BigEndian.Uint16(v)
	}
	if v := a[nl.IPSET_ATTR_IFACE]; v != nil {
		e.Iface = nfattr.String(v)
	}
	if v := a[nl.IPSET_ATTR_TIMEOUT]; len(v) == 4 {
		e.Timeout = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
	}
	if v := a[nl.IPSET_ATTR_COMMENT]; v != nil {
		e.Comment = nfattr.String(v)
	}
	return e
}
