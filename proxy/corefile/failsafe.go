package corefile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
)

// FailsafeReason is the reason of the failsafes of the Corefile.
const FailsafeReason = "failsafe of the Corefile"

// failsafeUsage is how an entry is written.
const failsafeUsage = `CIDR, CIDR:PORT, CIDR:PORT/PROTOCOL or CIDR:FIRST-LAST/PROTOCOL, IPv6 in brackets, such as 192.0.2.0/24:443/tcp or [2001:db8::]/64:443`

// protocols of the directive failsafe.
var failsafeProtocols = []struct {
	name     string
	protocol policy.Protocol
}{{"tcp", policy.TCP}, {"udp", policy.UDP}, {"sctp", policy.SCTP}}

func readFailsafe(c *Config, s stanza) error {
	if len(s.args) == 0 {
		return s.errorf("has no destination, write %s", failsafeUsage)
	}
	for _, arg := range s.args {
		p, ports, err := s.failsafe(arg)
		if err != nil {
			return err
		}
		for _, r := range ports {
			c.Failsafes = append(c.Failsafes, policy.Failsafe{Prefix: p, Ports: r, Reason: FailsafeReason, Source: fmt.Sprintf("%s:%d", s.file, s.line)})
		}
	}
	return s.flat()
}

// failsafe reads an entry: its destinations, and a range of ports for each of its protocols.
func (s stanza) failsafe(arg string) (p netip.Prefix, ports []policy.PortRange, err error) {
	to, service, err := s.splitFailsafe(arg)
	if err != nil {
		return p, nil, err
	}
	if !strings.Contains(to, "/") {
		if a, err := netip.ParseAddr(to); err == nil && a.Zone() == "" {
			to = netip.PrefixFrom(a, a.BitLen()).String()
		}
	}
	if p, err = netip.ParsePrefix(to); err != nil || p.Addr().Is4In6() {
		return p, nil, s.errorf("%q is not a destination, write %s", arg, failsafeUsage)
	}
	if p != p.Masked() {
		return p, nil, s.errorf("%s has bits set beyond its length, write %s instead", p, p.Masked())
	}
	if service != "" {
		ports, err = s.failsafePorts(arg, service)
		return p, ports, err
	}
	if p.Bits() == 0 {
		return p, nil, s.errorf("%s is every destination, so that no policy for nodes would hold, write a range or a port", p)
	}
	return p, []policy.PortRange{{Protocol: policy.AnyProtocol, Last: 65535}}, nil
}

// splitFailsafe splits an entry into a range without brackets and ports. Brackets are around
// the address or around the range.
func (s stanza) splitFailsafe(arg string) (to, service string, err error) {
	if rest, ok := strings.CutPrefix(arg, "["); ok {
		address, rest, ok := strings.Cut(rest, "]")
		bits, service, port := strings.Cut(rest, ":")
		if !ok || !strings.Contains(address, ":") || bits != "" && bits[0] != '/' || port && service == "" {
			return "", "", s.errorf("%q is not a destination, write %s", arg, failsafeUsage)
		}
		return address + bits, service, nil
	}
	to, service, port := strings.Cut(arg, ":")
	switch {
	case strings.Contains(service, ":"):
		return "", "", s.errorf("%q is IPv6 without brackets, write for example [2001:db8::]/64:443", arg)
	case port && service == "":
		return "", "", s.errorf("%q is not a destination, write %s", arg, failsafeUsage)
	}
	return to, service, nil
}

// failsafePorts reads PORT[-PORT][/PROTOCOL].
func (s stanza) failsafePorts(arg, service string) (ports []policy.PortRange, err error) {
	numbers, word, one := strings.Cut(service, "/")
	from, to, isRange := strings.Cut(numbers, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || last < first {
		return nil, s.errorf("%q has no port from 1 to 65535 and no range of them, write %s", arg, failsafeUsage)
	}
	for _, p := range failsafeProtocols {
		if !one || p.name == word {
			ports = append(ports, policy.PortRange{Protocol: p.protocol, First: uint16(first), Last: uint16(last)})
		}
	}
	if len(ports) == 0 {
		return nil, s.errorf("%q is not a protocol with ports, write tcp, udp or sctp, or no protocol for all three", word)
	}
	return ports, nil
}
