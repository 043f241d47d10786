package ipset

import (
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

const (
	// flagListHeader is IPSET_FLAG_LIST_HEADER of linux/netfilter/ipset/ip_set.h: leave
	// entries out.
	flagListHeader = 1 << 2
	// errHashFull is IPSET_ERR_HASH_FULL, the first type-specific error of
	// linux/netfilter/ipset/ip_set_hash.h.
	errHashFull = nl.IPSET_ERR_TYPE_SPECIFIC
)

// message is the type of a message of IP sets.
func message(command uint16) uint16 { return unix.NFNL_SUBSYS_IPSET<<8 | command }

// appendName begins the attributes of a request, about one set or with "" about none.
func appendName(b []byte, name string) []byte {
	b = nfattr.AppendUint8(b, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	if name != "" {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_SETNAME, name)
	}
	return b
}

func family(ipv6 bool) uint8 {
	if ipv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// appendHeader appends the attributes with which a set is created.
func appendHeader(b []byte, s Set) []byte {
	b, data := nfattr.Begin(b, nl.IPSET_ATTR_DATA)
	if s.HashSize != 0 {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_HASHSIZE, s.HashSize)
	}
	if s.MaxElem != 0 {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_MAXELEM, s.MaxElem)
	}
	if s.Timeout {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_TIMEOUT, 0)
	}
	flags := uint32(0)
	if s.Comment {
		flags |= nl.IPSET_FLAG_WITH_COMMENT
	}
	if s.Counters {
		flags |= nl.IPSET_FLAG_WITH_COUNTERS
	}
	if flags != 0 {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_CADT_FLAGS, flags)
	}
	nfattr.End(b, data)
	return b
}

// seconds rounds up: an entry must not end before its deadline.
func seconds(d time.Duration) uint32 {
	return uint32((min(max(d, time.Second), TimeoutMax) + time.Second - 1) / time.Second)
}
