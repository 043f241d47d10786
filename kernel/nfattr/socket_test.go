package nfattr

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reply is one message of a listing.
func reply(typ uint16, seq uint32, body []byte) []byte {
	b, begin := AppendHeader(nil, typ, 0, seq)
	b = append(b[:begin+unix.SizeofNlMsghdr], body...)
	EndMessage(b, begin)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func errno(e syscall.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e)))
}

// The messages of a listing are read up to its end, and no others or incomplete ones.
func TestSocketReads(t *testing.T) {
	const mine, earlier = 7, 6
	for _, c := range []struct {
		name string
		wire [][]byte
		took int
		done bool
		err  error
	}{
		{"two messages, more to come", [][]byte{reply(1, mine, make([]byte, 8)), reply(1, mine, make([]byte, 5))}, 2, false, nil},
		{"its end", [][]byte{reply(1, mine, make([]byte, 8)), reply(unix.NLMSG_DONE, mine, errno(0))}, 1, true, nil},
		{"an earlier listing's rest", [][]byte{reply(1, earlier, make([]byte, 8)), reply(unix.NLMSG_DONE, earlier, errno(0)), reply(1, mine, make([]byte, 8))}, 1, false, nil},
		{"an error", [][]byte{reply(unix.NLMSG_ERROR, mine, errno(syscall.ENOENT))}, 0, true, syscall.ENOENT},
		{"an error at its end", [][]byte{reply(unix.NLMSG_DONE, mine, errno(syscall.EINTR))}, 0, true, syscall.EINTR},
		{"an end without a word", [][]byte{reply(unix.NLMSG_DONE, mine, nil)}, 0, true, io.ErrUnexpectedEOF},
		{"a message that is cut", [][]byte{reply(1, mine, make([]byte, 8))[:18]}, 0, true, io.ErrUnexpectedEOF},
		{"half a header", [][]byte{make([]byte, 7)}, 0, true, io.ErrUnexpectedEOF},
		{"a message without netfilter's header", [][]byte{reply(1, mine, make([]byte, 3)), reply(1, mine, make([]byte, 4))}, 1, false, nil},
	} {
		var wire []byte
		for _, m := range c.wire {
			wire = append(wire, m...)
		}
		took := 0
		done, err := (&Socket{seq: mine}).read(wire, func([]byte) { took++ })
		if took != c.took || done != c.done || !errors.Is(err, c.err) {
			t.Errorf("%s: %d messages, done %t, %v", c.name, took, done, err)
		}
	}
}
