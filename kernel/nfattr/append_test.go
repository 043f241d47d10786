package nfattr_test

import (
	"testing"

	"github.com/namegate/namegate/kernel/nfattr"
)

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
