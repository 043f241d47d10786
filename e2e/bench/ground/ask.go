package ground

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// AskLimit bounds one DNS exchange.
const AskLimit = 5 * time.Second

// Resolve asks a server for a name from a host once. It is an error unless there are records.
func Resolve(h *lab.Host, server netip.AddrPort, name string, qtype uint16) error {
	r, err := h.Ask("udp", server, name, qtype, AskLimit)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", server, name, err)
	}
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		return fmt.Errorf("ask %s for %s: %s with %d records", server, name, dns.RcodeToString[r.Rcode], len(r.Answer))
	}
	return nil
}
