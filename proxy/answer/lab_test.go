package answer

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/wiretest"
)

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// The words of the tests.
var (
	newQuery = wiretest.Query
	packed   = wiretest.Packed
	parsed   = wiretest.Parsed
)

// message is an honest answer of these records.
func message(t testing.TB, q string, qtype uint16, rrs ...string) *dns.Msg {
	t.Helper()
	return wiretest.Answer(t, newQuery(q, qtype), rrs...)
}
