package peers

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// wide is an address as a number, an IPv4 one in its low bits.
type wide struct{ hi, lo uint64 }

func wideOf(a netip.Addr) wide {
	if a.Is4() {
		b := a.As4()
		return wide{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return wide{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr returns the address of 32 or 128 bits.
func (w wide) addr(width int) netip.Addr {
	if width == 32 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(w.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], w.hi)
	binary.BigEndian.PutUint64(b[8:], w.lo)
	return netip.AddrFrom16(b)
}

// wideBit returns the number that has bit n alone, 0 to 127.
func wideBit(n int) wide {
	if n >= 64 {
		return wide{1 << (n - 64), 0}
	}
	return wide{0, 1 << n}
}

func (w wide) plus(v wide) wide {
	lo, carry := bits.Add64(w.lo, v.lo, 0)
	hi, _ := bits.Add64(w.hi, v.hi, carry)
	return wide{hi, lo}
}

func (w wide) minus(v wide) wide {
	lo, borrow := bits.Sub64(w.lo, v.lo, 0)
	hi, _ := bits.Sub64(w.hi, v.hi, borrow)
	return wide{hi, lo}
}

func (w wide) less(v wide) bool { return w.hi < v.hi || w.hi == v.hi && w.lo < v.lo }

// zeros returns how many of the lowest bits are 0.
func (w wide) zeros() int {
	if w.lo == 0 {
		return 64 + bits.TrailingZeros64(w.hi)
	}
	return bits.TrailingZeros64(w.lo)
}

// log returns the greatest n for which 2^n numbers, from 0 on, are not above w.
func (w wide) log() int {
	if w == (wide{^uint64(0), ^uint64(0)}) {
		return 128
	}
	v := w.plus(wide{0, 1})
	if v.hi != 0 {
		return 63 + bits.Len64(v.hi)
	}
	return bits.Len64(v.lo) - 1
}
