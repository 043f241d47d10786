package ground

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// askLimit bounds one DNS exchange.
const askLimit = 5 * time.Second

// Ask resolves a name at a server from a host, and returns an error unless an address is
// answered.
func Ask(h *lab.Host, server netip.AddrPort, name string, qtype uint16) error {
	c, err := h.Dial("udp", server.String(), askLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	client := dns.Client{Timeout: askLimit}
	r, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype), &dns.Conn{Conn: c})
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", server, name, err)
	}
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		return fmt.Errorf("ask %s for %s: %s with %d records", server, name, dns.RcodeToString[r.Rcode], len(r.Answer))
	}
	return nil
}
