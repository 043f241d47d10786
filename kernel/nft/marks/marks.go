package marks

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// Use tells whether a rule reads or writes one bit of packet or connection marks. A packet mark that
// is written whole with the bit clear does not count: it can take an allowance away and not give
// one. The error says that the rule has an expression about marks in a form that is not known.
func Use(expressions []byte, bit uint32) (bool, error) {
	r := rule{bit: bit, registers: map[uint32]value{}}
	for _, e := range nfattr.All(expressions, unix.NFTA_LIST_ELEM) {
		a := nfattr.Parse(e)
		uses, err := r.expression(nfattr.String(a[unix.NFTA_EXPR_NAME]), nfattr.Parse(a[unix.NFTA_EXPR_DATA]))
		if uses || err != nil {
			return uses, err
		}
	}
	return false, nil
}

// source is where the content of a register is from.
type source int

const (
	unknown source = iota
	packet
	connection
)

// value is the content of a register: (source & and) ^ xor. and is 0 for a constant.
type value struct {
	source
	and, xor uint32
}

// rule is a rule that is read.
type rule struct {
	bit       uint32
	registers map[uint32]value
}

// register returns the number of a register of 32 bits: NFT_REG_1 and those after it are four each.
func register(b []byte) uint32 {
	if n := nfattr.Uint32(b); n < unix.NFT_REG32_00 {
		return unix.NFT_REG32_00 + 4*(n-unix.NFT_REG_1)
	}
	return nfattr.Uint32(b)
}

// get returns the content of a register.
func (r *rule) get(b []byte) value {
	if v, known := r.registers[register(b)]; known {
		return v
	}
	return value{and: ^uint32(0)}
}

// number reads an operand, which has the byte order of the machine.
func number(data []byte) uint32 {
	if v := nfattr.Parse(data)[unix.NFTA_DATA_VALUE]; len(v) == 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}

// expression applies one expression.
func (r *rule) expression(name string, a map[int][]byte) (uses bool, err error) {
	switch name {
	case "meta":
		if nfattr.Uint32(a[unix.NFTA_META_KEY]) == unix.NFT_META_MARK {
			return r.mark(packet, a[unix.NFTA_META_DREG], a[unix.NFTA_META_SREG]), nil
		}
		delete(r.registers, register(a[unix.NFTA_META_DREG]))
	case "ct":
		if nfattr.Uint32(a[unix.NFTA_CT_KEY]) == unix.NFT_CT_MARK {
			return r.mark(connection, a[unix.NFTA_CT_DREG], a[unix.NFTA_CT_SREG]), nil
		}
		delete(r.registers, register(a[unix.NFTA_CT_DREG]))
	case "immediate":
		r.registers[register(a[unix.NFTA_IMMEDIATE_DREG])] = value{xor: number(a[unix.NFTA_IMMEDIATE_DATA])}
	case "bitwise":
		v := r.get(a[unix.NFTA_BITWISE_SREG])
		if mask := a[unix.NFTA_BITWISE_MASK]; mask != nil {
			v.and, v.xor = v.and&number(mask), v.xor&number(mask)^number(a[unix.NFTA_BITWISE_XOR])
		} else if v.and != 0 { // a shift, or an operation with another register
			v = value{source: v.source, and: ^uint32(0), xor: r.bit}
		}
		r.registers[register(a[unix.NFTA_BITWISE_DREG])] = v
	case "cmp":
		v, with := r.get(a[unix.NFTA_CMP_SREG]), number(a[unix.NFTA_CMP_DATA])
		return r.reads(v) || v.source != unknown && v.and == ^uint32(0) && (with&r.bit != 0 || with == 0), nil
	case "lookup":
		uses = r.reads(r.get(a[unix.NFTA_LOOKUP_SREG]))
		delete(r.registers, register(a[unix.NFTA_LOOKUP_DREG]))
		return uses, nil
	case "range":
		return r.reads(r.get(a[unix.NFTA_RANGE_SREG])), nil
	case "target", "match":
		// The attributes of both have the same numbers.
		return r.extension(nfattr.String(a[unix.NFTA_TARGET_NAME]), nfattr.Uint32(a[unix.NFTA_TARGET_REV]), a[unix.NFTA_TARGET_INFO])
	default:
		// It may write to registers.
		clear(r.registers)
	}
	return false, nil
}

// mark loads a mark into a register, or writes one.
func (r *rule) mark(of source, to, from []byte) (uses bool) {
	if from == nil {
		r.registers[register(to)] = value{source: of, and: ^uint32(0)}
		return false
	}
	v := r.get(from)
	switch kept := v.and&r.bit != 0 && v.xor&r.bit == 0; {
	case v.source == of && v.and != 0:
		return !kept
	case of == connection:
		return true
	default:
		return (v.and|v.xor)&r.bit != 0
	}
}

// reads tells whether a match of a mark asks the bit by a mask.
func (r *rule) reads(v value) bool {
	return v.source != unknown && (v.and != ^uint32(0) || v.xor != 0) && v.and&r.bit != 0
}

// savesSet is the mode of CONNMARK that sets the mark (XT_CONNMARK_SET of linux/netfilter/xt_connmark.h).
const savesSet = 0

// extension judges an expression of iptables, by its structure in linux/netfilter/xt_*.h.
func (r *rule) extension(name string, revision uint32, info []byte) (bool, error) {
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(info[4*i:]) }
	type form struct {
		name     string
		revision uint32
	}
	if len(info) < 16 {
		info = append(info[:len(info):len(info)], make([]byte, 16)...)
	}
	writes := func(value, mask uint32) bool { return mask&r.bit != 0 && (mask != ^uint32(0) || value&r.bit != 0) }
	switch (form{name, revision}) {
	case form{"MARK", 2}:
		return writes(word(0), word(1)), nil
	case form{"TPROXY", 0}, form{"TPROXY", 1}:
		return writes(word(1), word(0)), nil
	case form{"mark", 1}, form{"connmark", 1}:
		return word(1)&r.bit != 0, nil
	case form{"CONNMARK", 1}, form{"CONNMARK", 2}:
		mode := map[uint32]byte{1: info[12], 2: info[14]}[revision]
		return word(1)&r.bit != 0 || mode != savesSet && word(2)&r.bit != 0, nil
	}
	switch name {
	case "MARK", "TPROXY", "mark", "connmark", "CONNMARK":
		return false, fmt.Errorf("revision %d of %s is not known", revision, name)
	}
	return false, nil
}
