package ipset

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
)

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
		sends, messages := 0, 0
		k := &Kernel{}
		k.writer.send = func(_ []byte, last int) ([]nfattr.Reply, error) {
			sends, messages = sends+1, messages+last+1
			return []nfattr.Reply{{Message: last}}, nil
		}
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
		if sends != test.sends || messages > test.maxMessages {
			t.Errorf("%s: %d sends of %d messages, want %d of at most %d", test.name, sends, messages, test.sends, test.maxMessages)
		}
	}
}
