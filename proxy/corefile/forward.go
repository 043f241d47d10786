package corefile

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/policy"
)

// The forward's defaults: a try of one second leaves room for several within
// the five seconds after which resolvers of libc give up (resolv.conf(5)).
const (
	defaultTimeout  = time.Second
	defaultDeadline = 4 * time.Second
	defaultMaxFails = 2
	maxUpstreams    = 15 // as in CoreDNS; a Service counts as one
)

// forward reads "forward FROM TO… { … }" for each zone of the block.
func (p *parser) forward(zones []policy.Name, s stanza) {
	z, from, err := readForward(s)
	if err != nil {
		p.fail(err)
		return
	}
	for _, zone := range zones {
		z.Name = zone
		if from != "" {
			if !from.HasSuffix(zone) {
				p.fail(s.errorf("%s is not at or below the zone %s, write \".\" for the whole zone", from, zone))
				return
			}
			z.Name = from
		}
		if first, again := p.zones[z.Name]; again {
			p.fail(s.errorf("the zone %s has a forward in line %d already, write all its addresses there", z.Name, first.line))
			return
		}
		p.zones[z.Name] = s
		p.config.Zones = append(p.config.Zones, z)
	}
}

func readForward(s stanza) (Zone, policy.Name, error) {
	z := Zone{Timeout: defaultTimeout, Deadline: defaultDeadline, MaxFails: defaultMaxFails}
	if len(s.args) < 2 {
		return z, "", s.errorf(`has too few values, write "forward . ADDRESS…" or "forward . kube-dns.kube-system" instead`)
	}
	from, err := zoneName(s.args[0])
	if err != nil {
		return z, "", s.errorf("%w, write \".\" for the whole zone", err)
	}
	for _, arg := range s.args[1:] {
		if err := z.add(s, arg); err != nil {
			return z, "", err
		}
	}
	if n := len(z.To) + len(z.Services); n > maxUpstreams {
		return z, "", s.errorf("has %d addresses and Services, write at most %d", n, maxUpstreams)
	}
	for _, line := range s.block {
		if err := forwardOption(&z, line); err != nil {
			return z, "", err
		}
	}
	if z.Deadline < z.Timeout {
		return z, "", s.errorf("deadline %v is below timeout %v, write a longer one", z.Deadline, z.Timeout)
	}
	return z, from, nil
}

func forwardOption(z *Zone, line stanza) (err error) {
	switch line.option() {
	case "policy":
		z.Policy, err = order(line)
	case "timeout":
		z.Timeout, err = line.duration("timeout 1s", 50*time.Millisecond, 4*time.Second)
	case "deadline":
		z.Deadline, err = line.duration("deadline 4s", 100*time.Millisecond, 10*time.Second)
	case "max_fails":
		z.MaxFails, err = line.number("max_fails 2", 0, 1000)
	default:
		err = line.errorf("is not an option of forward, write policy, timeout, deadline or max_fails")
	}
	return err
}

func order(line stanza) (Policy, error) {
	arg, err := line.one("policy random")
	if err != nil {
		return 0, err
	}
	for _, p := range []Policy{Random, RoundRobin, Sequential} {
		if p.String() == arg {
			return p, nil
		}
	}
	return 0, line.errorf("%q is not an order, write random, round_robin or sequential", arg)
}

// add reads one argument: ADDR, ADDR:PORT, [ADDR]:PORT or NAME.NAMESPACE.
func (z *Zone) add(s stanza, arg string) error {
	if strings.Contains(arg, "://") {
		return s.errorf("%q has a scheme and only plain DNS is spoken, write the address alone", arg)
	}
	if strings.HasPrefix(arg, "/") {
		return s.errorf("%q is a file, write the addresses of its nameservers instead", arg)
	}
	to, isAddress, err := upstream(s, arg)
	if err != nil {
		return err
	}
	if isAddress {
		if slices.Contains(z.To, to) {
			return s.errorf("%s is there twice, write it once", to)
		}
		z.To = append(z.To, to)
		return nil
	}
	ref, err := service(s, arg)
	if err != nil {
		return err
	}
	if slices.Contains(z.Services, ref) {
		return s.errorf("%s is there twice, write it once", ref)
	}
	z.Services, z.Before = append(z.Services, ref), append(z.Before, len(z.To))
	return nil
}

// upstream reads an address with or without a port, if it is one.
func upstream(s stanza, arg string) (to netip.AddrPort, isAddress bool, err error) {
	if to, err = netip.ParseAddrPort(arg); err != nil {
		a, err := netip.ParseAddr(strings.Trim(arg, "[]"))
		if err != nil {
			return to, false, nil
		}
		to = netip.AddrPortFrom(a, 53)
	}
	a := to.Addr().Unmap()
	if to.Port() == 0 || a.IsUnspecified() || a.IsMulticast() {
		return to, true, s.errorf("%q cannot be asked, write the address and port of a resolver", arg)
	}
	return netip.AddrPortFrom(a, to.Port()), true, nil
}

// duration returns the only argument as a duration within the bounds.
func (s stanza) duration(usage string, least, most time.Duration) (time.Duration, error) {
	arg, err := s.one(usage)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(arg)
	if err != nil {
		return 0, s.errorf("%q is not a duration, write for example %q", arg, usage)
	}
	if d < least || d > most {
		return 0, s.errorf("%v is out of bounds, write %v to %v", d, least, most)
	}
	return d, nil
}

// number returns the only argument as a whole number within the bounds.
func (s stanza) number(usage string, least, most int) (int, error) {
	arg, err := s.one(usage)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(arg)
	if err != nil {
		return 0, s.errorf("%q is not a whole number, write for example %q", arg, usage)
	}
	if n < least || n > most {
		return 0, s.errorf("%d is out of bounds, write %d to %d", n, least, most)
	}
	return n, nil
}
