package corefile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
)

// failsafeUsage is how a line is written.
const failsafeUsage = `"out CIDR…" or "in CIDR…", with "PROTOCOL PORT…" behind it or not, "nodes CIDR…" or "none", such as "failsafe out 192.0.2.0/24 2001:db8::/64 TCP 443 8000-8999"`

// failsafeProtocols are the protocols with ports.
var failsafeProtocols = map[string]policy.Protocol{"TCP": policy.TCP, "UDP": policy.UDP, "SCTP": policy.SCTP}

// readFailsafe reads a line of the table of failsafes.
func readFailsafe(c *Config, s stanza) error {
	if len(s.args) == 0 {
		return s.errorf("has no word, write %s", failsafeUsage)
	}
	word, args := s.args[0], s.args[1:]
	switch {
	case word == "none" && len(args) == 0:
		c.Failsafe.None = true
	case word == "nodes" && len(args) > 0:
		nodes, err := s.networks(args)
		if err != nil {
			return err
		}
		for _, p := range nodes {
			if p.Bits() == 0 {
				return s.errorf("%s is every address, write the ranges of the nodes", p)
			}
		}
		c.Failsafe.Nodes = append(c.Failsafe.Nodes, nodes...)
	case (word == "out" || word == "in") && len(args) > 0:
		row, err := s.failsafeRow(args)
		if err != nil {
			return err
		}
		row.In, row.Out = word == "in", word == "out"
		c.Failsafe.Rows = append(c.Failsafe.Rows, row)
	default:
		return s.errorf("%q is no line of the table, write %s", strings.Join(s.args, " "), failsafeUsage)
	}
	return nil
}

// failsafeRow reads destinations, or sources, and the ports of a protocol.
func (s stanza) failsafeRow(args []string) (row policy.Failsafe, err error) {
	row.Name = fmt.Sprintf("%s:%d", s.file, s.line)
	at := slices.IndexFunc(args, func(a string) bool { return !strings.ContainsAny(a, ".:") })
	if at < 0 {
		at = len(args)
	}
	if row.Networks, err = s.networks(args[:at]); err != nil {
		return row, err
	}
	if at == len(args) {
		for _, p := range row.Networks {
			if p.Bits() == 0 {
				return row, s.errorf("%s is every address, so that no policy for nodes would hold, write a range or a port", p)
			}
		}
		return row, nil
	}
	protocol, known := failsafeProtocols[args[at]]
	if !known {
		return row, s.errorf("%q is neither an address nor a protocol with ports, write TCP, UDP or SCTP", args[at])
	}
	if at+1 == len(args) {
		return row, s.errorf("%s has no port, write for example %s 443", args[at], args[at])
	}
	for _, text := range args[at+1:] {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first == 0 || last < first {
			return row, s.errorf("%q is no port from 1 to 65535 and no range of them, write %s", text, failsafeUsage)
		}
		row.Ports = append(row.Ports, policy.PortRange{Protocol: protocol, First: uint16(first), Last: uint16(last)})
	}
	return row, nil
}

// networks reads ranges and addresses, and returns them sorted.
func (s stanza) networks(args []string) (out []netip.Prefix, err error) {
	out, err = each(s, args, "has no address, write "+failsafeUsage, s.network)
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), err
}
