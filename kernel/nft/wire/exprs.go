package wire

import (
	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// expr writes an expression.
func (m *Batch) expr(name string, attrs func([]byte) []byte) {
	var element, data int
	m.exprs, element = nfattr.Begin(m.exprs, unix.NFTA_LIST_ELEM)
	m.exprs = nfattr.AppendString(m.exprs, unix.NFTA_EXPR_NAME, name)
	m.exprs, data = nfattr.Begin(m.exprs, unix.NFTA_EXPR_DATA)
	m.exprs = attrs(m.exprs)
	nfattr.End(m.exprs, data)
	nfattr.End(m.exprs, element)
}

// immediate writes a verdict; chain "" is none.
func (m *Batch) immediate(code int32, chain string) {
	m.expr("immediate", func(b []byte) []byte {
		return appendVerdict(nfattr.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT), unix.NFTA_IMMEDIATE_DATA, code, chain)
	})
}

func (m *Batch) meta(key uint32, word int) {
	m.expr("meta", func(b []byte) []byte {
		return nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_META_DREG, register(word)), unix.NFTA_META_KEY, key)
	})
}

func (m *Batch) ct(key uint32, word int) {
	m.expr("ct", func(b []byte) []byte { return appendCt(b, key, word) })
}

func (m *Batch) ctOriginal(key uint32, word int) {
	m.expr("ct", func(b []byte) []byte { return nfattr.AppendUint8(appendCt(b, key, word), unix.NFTA_CT_DIRECTION, 0) })
}

func appendCt(b []byte, key uint32, word int) []byte {
	return nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_CT_DREG, register(word)), unix.NFTA_CT_KEY, key)
}

// port loads the destination port.
func (m *Batch) port(word int) { m.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, word) }

func (m *Batch) payload(base, offset, length uint32, word int) {
	m.expr("payload", func(b []byte) []byte {
		b = nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_PAYLOAD_DREG, register(word)), unix.NFTA_PAYLOAD_BASE, base)
		return nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_PAYLOAD_OFFSET, offset), unix.NFTA_PAYLOAD_LEN, length)
	})
}

// mask leaves of what was loaded the bits of a mask.
func (m *Batch) mask(mask []byte, word int) {
	m.expr("bitwise", func(b []byte) []byte {
		b = nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_BITWISE_SREG, register(word)), unix.NFTA_BITWISE_DREG, register(word))
		b = nfattr.AppendUint32(b, unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		b = appendData(b, unix.NFTA_BITWISE_MASK, mask)
		return appendData(b, unix.NFTA_BITWISE_XOR, make([]byte, len(mask)))
	})
}

// compare compares what was loaded with a value.
func (m *Batch) compare(op uint32, value []byte) {
	m.expr("cmp", func(b []byte) []byte {
		b = nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_CMP_SREG, register(0)), unix.NFTA_CMP_OP, op)
		return appendData(b, unix.NFTA_CMP_DATA, value)
	})
}

// lookup looks a key up in a set; id is that of an anonymous one, or 0.
func (m *Batch) lookup(set string, id uint32) {
	m.expr("lookup", func(b []byte) []byte {
		b = nfattr.AppendUint32(nfattr.AppendString(b, unix.NFTA_LOOKUP_SET, set), unix.NFTA_LOOKUP_SREG, register(0))
		if id != 0 {
			b = nfattr.AppendUint32(b, unix.NFTA_LOOKUP_SET_ID, id)
		}
		return b
	})
}

func appendData(b []byte, typ int, value []byte) []byte {
	b, data := nfattr.Begin(b, typ)
	b = nfattr.Append(b, unix.NFTA_DATA_VALUE, value)
	nfattr.End(b, data)
	return b
}
