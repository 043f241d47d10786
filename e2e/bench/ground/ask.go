package ground

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// AskLimit bounds one DNS exchange.
const AskLimit = 5 * time.Second

// Resolve asks a server for a name from a host once. There must be records.
func (g *Ground) Resolve(h *lab.Host, server netip.AddrPort, name string, qtype uint16) {
	r, err := h.Ask("udp", server, name, qtype, AskLimit)
	fatal.If(g, err)
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		g.Fatal(fmt.Errorf("ask %s for %s: %s with %d records", server, name, dns.RcodeToString[r.Rcode], len(r.Answer)))
	}
}
