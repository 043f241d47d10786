package corefile

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// The forward's defaults: a try of one second leaves room for several within
// the five seconds after which resolvers of libc give up (resolv.conf(5)).
const (
	defaultTimeout  = time.Second
	defaultDeadline = 4 * time.Second
	defaultMaxFails = 2
	maxUpstreams    = 15 // as in CoreDNS; a Service counts as one

	// Four probes a second: a recovered upstream is asked first again well within a
	// client's five seconds.
	defaultProbe = 250 * time.Millisecond
	// At 50 ms fifteen silent addresses cost 300 probes a second; after 10 s libc
	// has given a name up altogether (resolv.conf(5): two attempts of 5 s).
	minProbe, maxProbe = 50 * time.Millisecond, 10 * time.Second
	// A million queries under way are more than limits can be set to allow.
	maxConcurrent = 1 << 20
)

// forward reads "forward FROM TO… { … }" for each zone of the block.
func (p *parser) forward(zones []fqdn.Name, s stanza) {
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

func readForward(s stanza) (Zone, fqdn.Name, error) {
	z := Zone{Timeout: defaultTimeout, Deadline: defaultDeadline, MaxFails: defaultMaxFails, Probe: defaultProbe}
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
	if err := z.options(s); err != nil {
		return z, "", err
	}
	if z.Deadline < z.Timeout {
		return z, "", s.errorf("deadline %v is below timeout %v, write a longer one", z.Deadline, z.Timeout)
	}
	return z, from, nil
}

func (z *Zone) options(s stanza) error {
	return s.options("an option of forward", forwardElsewhere,
		set("policy", &z.Policy, order),
		bounded("timeout", "1s", &z.Timeout, 50*time.Millisecond, 4*time.Second, stanza.span),
		bounded("deadline", "4s", &z.Deadline, 100*time.Millisecond, 10*time.Second, stanza.span),
		number("max_fails", "2", &z.MaxFails, 0, 1000),
		set("health_check", &z.Probe, probe),
		number("max_concurrent", "1000", &z.MaxConcurrent, 0, maxConcurrent),
		set("force_tcp", &z.ForceTCP, stanza.bare))
}

// probe refuses what CoreDNS lets the probe's question be.
func probe(line stanza) (time.Duration, error) {
	if len(line.args) > 1 {
		return 0, line.errorf(`asks for the root's name servers, to which any reply counts, write "health_check %s" without %s`, line.args[0], strings.Join(line.args[1:], " "))
	}
	return only(line, "health_check 250ms", minProbe, maxProbe, stanza.span)
}

func order(line stanza) (Policy, error) {
	arg, err := line.word("policy random", "an order", "random", string(RoundRobin), string(Sequential))
	if arg == "random" {
		return Random, err
	}
	return Policy(arg), err
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
