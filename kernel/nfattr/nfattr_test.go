package nfattr_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/diff"
)

// attrs renders attributes as the kernel does, each padded to four bytes.
func attrs(pairs ...any) []byte {
	var out []byte
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, nl.NewRtAttr(pairs[i].(int), pairs[i+1].([]byte)).Serialize()...)
	}
	return out
}

func TestParse(t *testing.T) {
	whole := attrs(1, []byte("ab"), 2|unix.NLA_F_NESTED, attrs(3, []byte{7}), 4|unix.NLA_F_NET_BYTEORDER, []byte{0, 53}, 5, []byte{}, 1, []byte("cd"))
	got := nfattr.Parse(whole)
	want := map[int][]byte{1: []byte("cd"), 2: attrs(3, []byte{7}), 4: {0, 53}, 5: {}}
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	diff.Error(t, [][]byte{[]byte("ab"), []byte("cd")}, nfattr.All(whole, 1), "All")
	if got := nfattr.All(whole, 9); got != nil {
		t.Errorf("All of a type that is not there: %v", got)
	}
	if inner := nfattr.Parse(got[2]); !bytes.Equal(inner[3], []byte{7}) {
		t.Errorf("nested: %v", inner)
	}
}

func TestBrokenInputYieldsThePartBefore(t *testing.T) {
	good := attrs(1, []byte{1, 2, 3, 4})
	for _, tail := range [][]byte{nil, {8}, {0, 0, 2, 0}, {3, 0, 2, 0}, {255, 255, 2, 0}, {12, 0, 2, 0, 1, 2, 3}} {
		got := nfattr.Parse(append(bytes.Clone(good), tail...))
		diff.Error(t, map[int][]byte{1: {1, 2, 3, 4}}, got, "tail", tail)
	}
	// The last attribute need not be padded.
	if got := nfattr.Parse([]byte{5, 0, 2, 0, 9}); !bytes.Equal(got[2], []byte{9}) {
		t.Errorf("unpadded: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(attrs(1, []byte("ab"), 2, []byte{}))
	f.Add([]byte{255, 255, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for typ, v := range nfattr.Parse(b) {
			total += len(v)
			all := nfattr.All(b, typ)
			if len(all) == 0 || !bytes.Equal(all[len(all)-1], v) {
				t.Fatalf("type %d: the last of %v is not %v", typ, all, v)
			}
		}
		if total > len(b) {
			t.Fatalf("%d bytes of values out of %d", total, len(b))
		}
	})
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
