package corefile

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy/fqdn"
)

// serving are the addresses from which a running agent takes its serving addresses, one
// for each resolver.
var serving = struct {
	first4, last4 netip.Addr
	range6        netip.Prefix
}{
	netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("169.254.20.254"), netip.MustParsePrefix("fd5c:7a1e:93b4::1:0/120"),
}

// isServing tells whether an agent may serve on the address.
func isServing(a netip.Addr) bool {
	return serving.range6.Contains(a) || a.Is4() && serving.first4.Compare(a) <= 0 && a.Compare(serving.last4) <= 0
}

// own returns what an address of the agent is, "" for another.
func (c *Config) own(a netip.Addr) string {
	switch {
	case slices.Contains(c.Bind, a):
		return "the endpoint"
	case isServing(a):
		return "an address that the agent serves on"
	}
	return ""
}

// Own tells whether an address is the agent's: of the endpoint or a serving address. As
// an upstream it would be a loop.
func (c *Config) Own(a netip.Addr) bool { return c.own(a) != "" }

// ownAddresses refuses the agent's own addresses where others' are meant.
func (p *parser) ownAddresses() {
	c := p.config
	for _, z := range c.Zones {
		for _, to := range z.To {
			if own := c.own(to.Addr()); own != "" {
				p.fail(p.zones[z.Name].errorf("%s is %s and would ask itself, write the resolver's own address instead", to.Addr(), own))
			}
		}
	}
	for _, a := range c.Intercept {
		if own := c.own(a); own != "" {
			p.fail(p.seen["intercept"].errorf("%s is %s, which needs no interception, remove it", a, own))
		}
	}
	for _, a := range c.Bind {
		if isServing(a) {
			p.fail(p.seen["bind"].errorf("%s is one of the addresses that the agent takes for each resolver, write another", a))
		}
	}
}

// zoneName reads the name of a zone, which has no wildcards: all names at or
// below it belong to it.
func zoneName(text string) (fqdn.Name, error) {
	if strings.Contains(text, "*") {
		plain := strings.TrimLeft(text, "*.")
		if plain == "" || strings.Contains(plain, "*") {
			plain = "example.org"
		}
		return "", errors.New("a zone has no wildcards and holds every name below it, write it as " + plain)
	}
	return fqdn.ParseName(text)
}
