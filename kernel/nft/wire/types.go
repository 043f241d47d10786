package wire

import (
	"encoding/binary"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// FamilyNumbers are the kernel's numbers for families (NFPROTO_* of linux/netfilter.h).
var FamilyNumbers = map[knftables.Family]uint8{
	knftables.InetFamily: unix.NFPROTO_INET, knftables.IPv4Family: unix.NFPROTO_IPV4, knftables.ARPFamily: unix.NFPROTO_ARP,
	knftables.NetDevFamily: unix.NFPROTO_NETDEV, knftables.BridgeFamily: unix.NFPROTO_BRIDGE, knftables.IPv6Family: unix.NFPROTO_IPV6,
}

// Protocols are the numbers of the protocols with ports.
var Protocols = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// ProtocolWord is the inverse of Protocols, "" for other numbers.
func ProtocolWord(number uint8) string {
	for word, n := range Protocols {
		if n == number {
			return word
		}
	}
	return ""
}

// RegisterWord is in bytes: each part of a concatenation begins at a multiple.
const RegisterWord = 4

func padded(length uint32) uint32 { return (length + RegisterWord - 1) / RegisterWord * RegisterWord }

// dataTypes are nft's numbers for the types of keys and values (enum datatypes of its
// datatype.h), and their lengths in bytes.
var dataTypes = map[string]struct{ number, length uint32 }{
	"ipv4_addr": {7, 4}, "ip daddr": {7, 4}, "ip6 daddr": {8, 16}, "uid": {24, 4}, "ipv6_addr": {8, 16}, "inet_proto": {12, 1}, "inet_service": {13, 2}, "ifname": {41, unix.IFNAMSIZ}, "iifname": {41, unix.IFNAMSIZ},
}

// typeBits is how many bits of the number of a concatenation each of its types has.
const typeBits = 6

// Parts divides the type of a set, in words of nft, into the words for its parts.
func Parts(concatenation string) []string { return strings.Split(concatenation, " . ") }

// Flags returns the kernel's flags of a set.
func Flags(set *knftables.Set) (flags uint32) {
	for _, flag := range set.Flags {
		flags |= map[knftables.SetFlag]uint32{knftables.TimeoutFlag: unix.NFT_SET_TIMEOUT, knftables.DynamicFlag: unix.NFT_SET_EVAL, knftables.IntervalFlag: unix.NFT_SET_INTERVAL}[flag]
	}
	return flags
}

// KeyForm returns the number and the length of a key, by the words for the types of its parts.
func KeyForm(types []string) (number, length uint32) {
	if len(types) == 1 {
		return dataTypes[types[0]].number, dataTypes[types[0]].length
	}
	for _, t := range types {
		number, length = number<<typeBits|dataTypes[t].number, length+padded(dataTypes[t].length)
	}
	return number, length
}

// lengthOf returns the length of a type, 0 for one that it does not know. A part of a packet's
// header, "@th,64,128", says it in bits.
func lengthOf(typ string) int {
	if strings.HasPrefix(typ, "@") {
		bits, _ := strconv.Atoi(typ[strings.LastIndexByte(typ, ',')+1:])
		return bits / 8
	}
	return int(dataTypes[typ].length)
}

// Decode reads the parts of a key or value by the words for their types, and returns the
// words that are left.
func Decode(b []byte, types []string) (out, left []string) {
	for len(b) > 0 && len(types) > 0 {
		size := lengthOf(types[0])
		if size == 0 || size > len(b) {
			size = len(b)
		}
		out = append(out, word(types[0], b[:size]))
		b, types = b[min(int(padded(uint32(size))), len(b)):], types[1:]
	}
	return out, types
}

// word renders one part as nft lists it.
func word(typ string, b []byte) string {
	switch typ {
	case "ipv4_addr", "ipv6_addr", "ip daddr", "ip6 daddr":
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case "ifname", "iifname":
		return `"` + nfattr.String(b) + `"`
	case "uid":
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
	case "inet_proto":
		return ProtocolWord(b[0])
	case "inet_service":
		if len(b) == 2 {
			return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
		}
	}
	return "0x" + new(big.Int).SetBytes(b).Text(16)
}

// encode is the inverse of Decode.
func encode(words, types []string) (b []byte, left []string, ok bool) {
	for _, w := range words {
		if len(types) == 0 {
			return nil, nil, false
		}
		part := wordBytes(types[0], w)
		if part == nil {
			return nil, nil, false
		}
		b, types = append(b, part...), types[1:]
		for len(words) > 1 && len(b)%RegisterWord != 0 {
			b = append(b, 0)
		}
	}
	return b, types, true
}

// wordBytes is the inverse of word; nil for a word that is none of the type.
func wordBytes(typ, w string) []byte {
	switch typ {
	case "ipv4_addr", "ipv6_addr":
		if a, err := netip.ParseAddr(w); err == nil && a.Is6() == (typ == "ipv6_addr") {
			return a.AsSlice()
		}
	case "ifname", "iifname":
		if name := strings.Trim(w, `"`); len(name) < unix.IFNAMSIZ {
			return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
		}
	case "inet_proto":
		if p, known := Protocols[w]; known {
			return []byte{p}
		}
	case "inet_service":
		if port, err := strconv.ParseUint(w, 0, 16); err == nil {
			return binary.BigEndian.AppendUint16(nil, uint16(port))
		}
	default:
		size := lengthOf(typ)
		if n, is := new(big.Int).SetString(w, 0); is && size > 0 && n.Sign() >= 0 && n.BitLen() <= 8*size {
			return n.FillBytes(make([]byte, size))
		}
	}
	return nil
}

// IsCatchAll tells whether the flags of an element are those of a catch-all element.
func IsCatchAll(flags []byte) bool { return nfattr.Uint32(flags)&CatchAllFlag != 0 }

// AppendTimeout appends the time after which an element ends. With the time that is left beside it, the deadline
// of an element that is there moves (Linux 6.12 and later). 0 would be for ever.
func AppendTimeout(b []byte, timeout time.Duration) []byte {
	left := uint64(max(timeout, time.Millisecond).Milliseconds())
	return nfattr.AppendUint64(nfattr.AppendUint64(b, unix.NFTA_SET_ELEM_TIMEOUT, left), unix.NFTA_SET_ELEM_EXPIRATION, left)
}

// commentType is the type of a comment in the user data of rules and elements (enum
// nftnl_udata_rule_types of libnftnl).
const commentType = 0

// Comment reads a comment: user data are runs of type, length and value.
func Comment(userdata []byte) string {
	for len(userdata) >= 2 {
		typ, length := userdata[0], int(userdata[1])
		if len(userdata) < 2+length {
			return ""
		}
		if typ == commentType {
			return nfattr.String(userdata[2 : 2+length])
		}
		userdata = userdata[2+length:]
	}
	return ""
}

// AppendComment appends user data that are a comment.
func AppendComment(b []byte, typ int, comment string) []byte {
	return nfattr.Append(b, typ, string([]byte{commentType, byte(len(comment) + 1)})+comment+"\x00")
}
