package ipset

import (
	"time"

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

// headerAttr renders the attributes with which a set is created.
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
	flags := uint32(0)
	if s.Comment {
		flags |= nl.IPSET_FLAG_WITH_COMMENT
	}
	if s.Counters {
		flags |= nl.IPSET_FLAG_WITH_COUNTERS
	}
	if flags != 0 {
		u32(nl.IPSET_ATTR_CADT_FLAGS, flags)
	}
	return data
}

// seconds rounds up: an entry must not end before its deadline.
func seconds(d time.Duration) uint32 {
	return uint32((min(max(d, time.Second), TimeoutMax) + time.Second - 1) / time.Second)
}
