package proxy

import (
	"bytes"
	"testing"
)

func TestFrame(t *testing.T) {
	if got := frame([]byte("abc")); !bytes.Equal(got, []byte{0, 3, 'a', 'b', 'c'}) {
		t.Errorf("% x", got)
	}
	if got := frame(make([]byte, 65535)); len(got) != 65537 || got[0] != 0xff || got[1] != 0xff {
		t.Errorf("%d bytes, % x", len(got), got[:2])
	}
}
