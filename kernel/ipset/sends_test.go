package ipset

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
)

// listen replaces the kernel by a fake that acknowledges messages that ask for it, and
// returns the number of sends and of messages.
func listen(t *testing.T) (*Kernel, func() (sends, messages int)) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	fatal.If(t, err)
	type seen struct{ sends, messages int }
	over := make(chan seen)
	go func() {
		var s seen
		buf := make([]byte, 256<<10)
		for {
			n, err := unix.Read(pair[1], buf)
			if err != nil || n == 0 {
				over <- s
				return
			}
			s.sends++
			for b := buf[:n]; len(b) >= unix.SizeofNlMsghdr; b = b[min((int(binary.NativeEndian.Uint32(b))+3)&^3, len(b)):] {
				s.messages++
				if binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_ACK == 0 {
					continue
				}
				reply := binary.NativeEndian.AppendUint32(nil, unix.SizeofNlMsghdr+4+unix.SizeofNlMsghdr)
				reply = binary.NativeEndian.AppendUint16(reply, unix.NLMSG_ERROR)
				reply = append(reply, 0, 0)
				reply = append(append(reply, b[8:12]...), make([]byte, 8)...)
				if _, err := unix.Write(pair[1], append(reply, b[:unix.SizeofNlMsghdr]...)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	return &Kernel{writer: &writer{fd: pair[0]}}, func() (int, int) {
		unix.Close(pair[0])
		s := <-over
		unix.Close(pair[1])
		return s.sends, s.messages
	}
}

// An answer costs few system calls, however many addresses and port sets it is for.
func TestSends(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name               string
		sets, addrs        int
		sends, maxMessages int
	}{
		{"nothing", 3, 0, 0, 0},
		{"one address", 1, 1, 1, 1},
		{"16 addresses", 1, 16, 1, 1},
		{"16 addresses on 5 port sets", 5, 16, 1, 5},
		{"16 addresses of each family on 20 port sets", 40, 16, 2, 40},
		{"100 addresses", 1, 100, 1, 2},
	} {
		k, end := listen(t)
		var ops []Op
		for range test.sets {
			op := Op{Set: "NG4-0123456789ab-01234567"}
			a := netip.MustParseAddr("198.51.100.0")
			for range test.addrs {
				a = a.Next()
				op.Entries = append(op.Entries, Entry{Addr: a, Timeout: time.Hour, Comment: "1700000000 www.example.org shop/allow www.example.org"})
			}
			ops = append(ops, op)
		}
		k.Apply(ops)
		for _, op := range ops {
			if op.Err != nil {
				t.Errorf("%s: %v", test.name, op.Err)
			}
		}
		if sends, messages := end(); sends != test.sends || messages > test.maxMessages {
			t.Errorf("%s: %d sends of %d messages, want %d of at most %d", test.name, sends, messages, test.sends, test.maxMessages)
		}
	}
}
