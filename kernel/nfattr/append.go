package nfattr

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// AppendHeader appends the headers of a netfilter message, for the subsystem and
// command of typ, and returns where it begins, for EndMessage. The family in it is
// IPv4's: where one matters to IP sets it is an attribute.
func AppendHeader(b []byte, typ, flags uint16, seq uint32) (msg []byte, begin int) {
	begin = len(b)
	b = append(b, 0, 0, 0, 0) // the length: EndMessage
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0) // the kernel
	return append(b, unix.AF_INET, unix.NFNETLINK_V0, 0, 0), begin
}

// EndMessage writes the length of the message that AppendHeader began. It may be
// called again after more was appended.
func EndMessage(b []byte, begin int) {
	binary.NativeEndian.PutUint32(b[begin:], uint32(len(b)-begin))
}

// Append appends one attribute with a value of bytes or of text, padded as the
// kernel wants it. For this and the rest, what stands in b before is a multiple of
// four bytes, as it is after each of them.
func Append[T string | []byte](b []byte, typ int, value T) []byte {
	return pad(append(appendHead(b, typ, len(value)), value...))
}

// AppendString appends a zero-terminated string.
func AppendString(b []byte, typ int, s string) []byte {
	return pad(append(append(appendHead(b, typ, len(s)+1), s...), 0))
}

// AppendUint8 appends one byte.
func AppendUint8(b []byte, typ int, v uint8) []byte {
	return append(appendHead(b, typ, 1), v, 0, 0, 0)
}

// AppendUint16 appends a number in network order.
func AppendUint16(b []byte, typ int, v uint16) []byte {
	return append(binary.BigEndian.AppendUint16(appendHead(b, typ|unix.NLA_F_NET_BYTEORDER, 2), v), 0, 0)
}

// AppendUint32 appends a number in network order.
func AppendUint32(b []byte, typ int, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, typ|unix.NLA_F_NET_BYTEORDER, 4), v)
}

// AppendUint64 appends a number in network order.
func AppendUint64(b []byte, typ int, v uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHead(b, typ|unix.NLA_F_NET_BYTEORDER, 8), v)
}

// Begin appends the head of an attribute that holds attributes, and returns where
// it begins, for End.
func Begin(b []byte, typ int) (out []byte, begin int) {
	return appendHead(b, typ|unix.NLA_F_NESTED, 0), len(b)
}

// End writes the length of the attribute that Begin began. It must not be over 65535
// bytes.
func End(b []byte, begin int) {
	binary.NativeEndian.PutUint16(b[begin:], uint16(len(b)-begin))
}

func appendHead(b []byte, typ, length int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+length))
	return binary.NativeEndian.AppendUint16(b, uint16(typ))
}

func pad(b []byte) []byte {
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}
