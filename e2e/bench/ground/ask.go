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

// Ask asks a server for a name from a host once.
func Ask(h *lab.Host, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	c, err := h.Dial("udp", server.String(), askLimit)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	client := dns.Client{Timeout: askLimit}
	r, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype), &dns.Conn{Conn: c})
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", server, name, err)
	}
	return r, nil
}

// Resolve is Ask, with an error unless there are records.
func Resolve(h *lab.Host, server netip.AddrPort, name string, qtype uint16) error {
	r, err := Ask(h, server, name, qtype)
	if err == nil && (r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0) {
		err = fmt.Errorf("ask %s for %s: %s with %d records", server, name, dns.RcodeToString[r.Rcode], len(r.Answer))
	}
	return err
}
