package nfattr_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestAppendEqualsTheLibrary(t *testing.T) {
	for _, test := range []struct {
		what string
		got  []byte
		want *nl.RtAttr
	}{
		{"bytes", nfattr.Append(nil, 7, []byte{1, 2, 3, 4, 5}), nl.NewRtAttr(7, []byte{1, 2, 3, 4, 5})},
		{"no bytes", nfattr.Append(nil, 7, []byte(nil)), nl.NewRtAttr(7, nil)},
		{"text", nfattr.Append(nil, 7, "abc"), nl.NewRtAttr(7, []byte("abc"))},
		{"string", nfattr.AppendString(nil, 2, "set"), nl.NewRtAttr(2, nl.ZeroTerminated("set"))},
		{"padded string", nfattr.AppendString(nil, 2, "sets"), nl.NewRtAttr(2, nl.ZeroTerminated("sets"))},
		{"8 bits", nfattr.AppendUint8(nil, 3, 200), nl.NewRtAttr(3, nl.Uint8Attr(200))},
		{"16 bits", nfattr.AppendUint16(nil, 4, 53), nl.NewRtAttr(4|unix.NLA_F_NET_BYTEORDER, []byte{0, 53})},
		{"32 bits", nfattr.AppendUint32(nil, 5, 1<<24+7), nl.NewRtAttr(5|unix.NLA_F_NET_BYTEORDER, nl.BEUint32Attr(1<<24+7))},
	} {
		if want := test.want.Serialize(); !bytes.Equal(test.got, want) {
			t.Errorf("%s: % x, want % x", test.what, test.got, want)
		}
	}
}

// Nested attributes of random depth, behind existing ones.
func TestNestedAttributes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var grow func(b []byte, twin *nl.RtAttr, depth int) []byte
	grow = func(b []byte, twin *nl.RtAttr, depth int) []byte {
		for range 1 + r.IntN(3) {
			typ := 1 + r.IntN(30)
			if depth > 0 && r.IntN(2) == 0 {
				next, begin := nfattr.Begin(b, typ)
				b = grow(next, twin.AddRtAttr(typ|unix.NLA_F_NESTED, nil), depth-1)
				nfattr.End(b, begin)
				continue
			}
			text := strings.Repeat("x", r.IntN(20))
			b = nfattr.AppendString(b, typ, text)
			twin.AddRtAttr(typ, nl.ZeroTerminated(text))
		}
		return b
	}
	for range 500 {
		twin := nl.NewRtAttr(1|unix.NLA_F_NESTED, nil)
		before := []byte("before..")
		b, begin := nfattr.Begin(bytes.Clone(before), 1)
		b = grow(b, twin, 3)
		nfattr.End(b, begin)
		if want := append(bytes.Clone(before), twin.Serialize()...); !bytes.Equal(b, want) {
			t.Fatalf("% x\nwant\n% x", b, want)
		}
	}
}

func TestMessage(t *testing.T) {
	b, begin := nfattr.AppendHeader([]byte("1234"), unix.NFNL_SUBSYS_IPSET<<8|9, unix.NLM_F_ACK, 77)
	b = nfattr.AppendUint8(b, 1, 6)
	nfattr.EndMessage(b, begin)
	req := &nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{
		Len: unix.SizeofNlMsghdr, Type: unix.NFNL_SUBSYS_IPSET<<8 | 9, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK, Seq: 77,
	}}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(1, nl.Uint8Attr(6)))
	if want := req.Serialize(); begin != 4 || !bytes.Equal(b[begin:], want) {
		t.Errorf("from %d: % x, want % x", begin, b[begin:], want)
	}
	if got := binary.NativeEndian.Uint32(b[begin:]); int(got) != len(b)-begin {
		t.Errorf("length %d of %d", got, len(b)-begin)
	}
}

func TestAppendingAllocatesNothing(t *testing.T) {
	room := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		b, begin := nfattr.AppendHeader(room, 1, 0, 1)
		b, nest := nfattr.Begin(b, 7)
		b = nfattr.AppendString(nfattr.AppendUint32(nfattr.AppendUint16(b, 1, 2), 3, 4), 5, "text")
		nfattr.End(b, nest)
		nfattr.EndMessage(b, begin)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
