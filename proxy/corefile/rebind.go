package corefile

import "net/netip"

// noHost are the ranges whose addresses are never another host's, with the reason. No
// directive makes a name open them.
var noHost = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"}, // RFC 1112 §4, with the broadcast address
}

// NoHost returns why the unmapped address can never be another host's:
// "loopback", "unspecified", "multicast" or "reserved"; "" if it can.
func NoHost(a netip.Addr) (reason string) {
	for _, n := range noHost {
		if n.prefix.Contains(a) {
			return n.reason
		}
	}
	return ""
}

func readRebind(c *Config, s stanza) error {
	const usage = `write "rebind allow SUFFIX CIDR…" instead`
	if len(s.args) < 3 || s.args[0] != "allow" {
		return s.errorf("is not understood, %s", usage)
	}
	suffix, err := s.domain(s.args[1])
	if err != nil {
		return err
	}
	for _, arg := range s.args[2:] {
		p, err := s.network(arg)
		if err != nil {
			return err
		}
		for _, n := range noHost {
			if p.Overlaps(n.prefix) {
				return s.errorf("%s can never be opened whole, %s is %s, write a range of hosts", p, n.prefix, n.reason)
			}
		}
		c.Rebind = append(c.Rebind, RebindAllow{Suffix: suffix, Range: p})
	}
	return nil
}
