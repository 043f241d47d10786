package proxy

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

func addresses(list ...string) (addrs []wire.Address) {
	for i, a := range list {
		ttl := 60
		if before, after, found := strings.Cut(a, "@"); found {
			ttl, _ = strconv.Atoi(before)
			a = after
		}
		addrs = append(addrs, wire.Address{Addr: netip.MustParseAddr(a), TTL: uint32(ttl), Record: i})
	}
	return addrs
}

// TestOpenAddressesNeedNoWrite: while it hangs, a kept answer that is open is given,
// also without the packet cache.
func TestOpenAddressesNeedNoWrite(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 2 {
		l.ask("10.1.0.4", "www.example.org", dns.TypeA)
		l.pass(time.Millisecond)
	}
	calls := l.kernel.calls
	if r := l.ask("10.1.0.4", "www.example.org", dns.TypeA); len(r.Answer) != 1 || l.kernel.calls != calls {
		t.Errorf("%v, after %d more calls", r, l.kernel.calls-calls)
	}
}
