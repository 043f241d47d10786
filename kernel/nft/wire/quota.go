package wire

import (
	"encoding/binary"
	"math"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// A quota that no traffic reaches counts, in one number for all processors, the bytes of the
// packets that match by an element. A counter has a number for each processor, and the
// expression last crashes the program nft up to at least 1.0.6 when it lists the element.
const (
	quotaName = "quota"
	// quotaBytes is the most that the kernel takes.
	quotaBytes = math.MaxInt64
)

// AppendQuota appends such a quota, with bytes counted, to an element.
func AppendQuota(b []byte, bytes uint64) []byte {
	b, expr := nfattr.Begin(b, unix.NFTA_SET_ELEM_EXPR)
	b = nfattr.AppendString(b, unix.NFTA_EXPR_NAME, quotaName)
	b, data := nfattr.Begin(b, unix.NFTA_EXPR_DATA)
	b = nfattr.AppendUint64(b, unix.NFTA_QUOTA_BYTES, quotaBytes)
	if bytes > 0 {
		b = nfattr.AppendUint64(b, unix.NFTA_QUOTA_CONSUMED, bytes)
	}
	nfattr.End(b, data)
	nfattr.End(b, expr)
	return b
}

// Quota reads the expression of an element, the value of NFTA_SET_ELEM_EXPR: the bytes that were
// counted, 0 of another expression.
func Quota(expr []byte) (bytes uint64) {
	quota := false
	nfattr.Each(expr, func(typ int, value []byte) {
		switch typ {
		case unix.NFTA_EXPR_NAME:
			quota = nfattr.String(value) == quotaName
		case unix.NFTA_EXPR_DATA:
			nfattr.Each(value, func(typ int, v []byte) {
				if quota && typ == unix.NFTA_QUOTA_CONSUMED && len(v) == 8 {
					bytes = binary.BigEndian.Uint64(v)
				}
			})
		}
	})
	return bytes
}
