package nfattr

import (
	"encoding/binary"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The package nl looks for the byte order at its first use and keeps it without a lock. Two
// goroutines must not be the first at once, so the first use is here.
var _ = nl.NativeEndian()

// HeaderLen is the length in bytes of struct nfgenmsg, which precedes the attributes of
// every message.
const HeaderLen = 4

// Parse splits a run of attributes by type, the flags of the type cleared. Of several of
// one type the last counts. Broken input yields the attributes before the break. The
// values alias b.
func Parse(b []byte) map[int][]byte {
	out := map[int][]byte{}
	Each(b, func(typ int, value []byte) { out[typ] = value })
	return out
}

// Find returns the value of an attribute by its type, or inside of that of one by the next type, and so on; nil without
// one. Of several of one type the first counts.
func Find(b []byte, types ...int) []byte {
	for _, want := range types {
		var found []byte
		Each(b, func(typ int, value []byte) {
			if typ == want && found == nil {
				found = value
			}
		})
		b = found
	}
	return b
}

// All returns the values of every attribute of one type, in order.
func All(b []byte, want int) [][]byte {
	var out [][]byte
	Each(b, func(typ int, value []byte) {
		if typ == want {
			out = append(out, value)
		}
	})
	return out
}

// Each calls f with each attribute of a run, in order, the flags of the type cleared.
// Broken input ends it. The values alias b.
func Each(b []byte, f func(typ int, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		f(int(binary.NativeEndian.Uint16(b[2:])&nl.NLA_TYPE_MASK), b[unix.SizeofNlAttr:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}

// String reads a zero-terminated string; without a zero it is all of b.
func String(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// Uint32 reads a number of 32 bits in network byte order, 0 without one.
func Uint32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Uint64 reads a number of 64 bits in network byte order, 0 without one.
func Uint64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
