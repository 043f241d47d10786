package access

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/testclock"
)

// TestThrottle: a burst, then so many a second, of each address; IPv6 addresses of
// one network count together.
func TestThrottle(t *testing.T) {
	c := testclock.New(time.Now())
	th := newThrottle(c.Now, reviewRate, allReviewRate)
	taken := func(n int, from func(int) netip.Addr) (out int) {
		for i := range n {
			if th.take(from(i)) {
				out++
			}
		}
		return out
	}
	one := func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	if n := taken(100, one); n != reviewRate.burst {
		t.Errorf("a burst of %d", n)
	}
	mapped := func(int) netip.Addr { return netip.MustParseAddr("::ffff:192.0.2.1") }
	if taken(1, mapped) != 0 {
		t.Error("the same address in other words has a burst of its own")
	}
	c.Pass(2 * time.Second)
	if n := taken(100, one); n != 2*int(reviewRate.perSecond) {
		t.Errorf("%d in two seconds", n)
	}
	network := netip.MustParsePrefix("2001:db8::/64").Addr().As16()
	if n := taken(100, func(i int) netip.Addr { network[15] = byte(i); return netip.AddrFrom16(network) }); n != reviewRate.burst {
		t.Errorf("an IPv6 network takes %d", n)
	}
	c.Pass(time.Hour)
	if n := taken(10*allReviewRate.burst, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) }); n != allReviewRate.burst {
		t.Errorf("all together take %d", n)
	}
}
