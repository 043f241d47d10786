package marks

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// extension is a rule with one expression of iptables.
func extension(kind, name string, revision uint32, words ...uint32) []byte {
	var info []byte
	for _, w := range words {
		info = binary.NativeEndian.AppendUint32(info, w)
	}
	b, element := nfattr.Begin(nil, unix.NFTA_LIST_ELEM)
	b = nfattr.AppendString(b, unix.NFTA_EXPR_NAME, kind)
	b, data := nfattr.Begin(b, unix.NFTA_EXPR_DATA)
	b = nfattr.AppendUint32(nfattr.AppendString(b, unix.NFTA_TARGET_NAME, name), unix.NFTA_TARGET_REV, revision)
	b = nfattr.Append(b, unix.NFTA_TARGET_INFO, info)
	nfattr.End(b, data)
	nfattr.End(b, element)
	return b
}

// TestUseOfExtensions: rules of iptables in nftables have expressions of its own. Those about marks in a
// revision that is not known are an error. Package nft tests the expressions of nftables.
func TestUseOfExtensions(t *testing.T) {
	for _, test := range []struct {
		kind, name string
		revision   uint32
		info       []uint32
		uses       bool
		err        string
	}{
		{"target", "MARK", 2, []uint32{0x40, 0x40}, true, ""},
		{"target", "MARK", 2, []uint32{0x80, 0x80}, false, ""},
		{"target", "MARK", 2, []uint32{0x80, 0xffffffff}, false, ""}, // the bit is cleared with the rest
		{"target", "MARK", 2, []uint32{0xc0, 0xffffffff}, true, ""},
		{"match", "mark", 1, []uint32{0, 0x40}, true, ""},
		{"match", "connmark", 1, []uint32{0x80, 0x80}, false, ""},
		{"target", "CONNMARK", 2, []uint32{0x80, 0x80, 0xffffffff, 0}, false, ""}, // sets the other mark's bits
		{"target", "CONNMARK", 2, []uint32{0, 0x80, 0x40, 0x02020202}, true, ""},  // restores
		{"target", "CONNMARK", 1, []uint32{0, 0x80, 0xff, 0x01010101}, true, ""},  // saves
		{"target", "TPROXY", 1, []uint32{0x40, 0x40, 0, 0, 0, 0}, true, ""},       // the mask first
		{"target", "MARK", 9, nil, false, "revision 9 of MARK is not known"},      // of a newer kernel
		{"match", "comment", 9, nil, false, ""}, {"target", "MASQUERADE", 0, nil, false, ""},
	} {
		uses, err := Use(extension(test.kind, test.name, test.revision, test.info...), 0x40)
		if uses != test.uses || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s %s %d %#x: %v, %v", test.kind, test.name, test.revision, test.info, uses, err)
		}
	}
}
