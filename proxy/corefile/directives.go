package corefile

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// directive is one option of the whole agent.
type directive struct {
	once  bool          // may appear once
	block bool          // has a block
	reset func(*Config) // takes the default away before the first line
	read  func(*Config, stanza) error
}

var directives = map[string]directive{
	"audit":      {once: true, block: true, read: readAudit},
	"bind":       {reset: func(c *Config) { c.Bind = nil }, read: func(c *Config, s stanza) error { return s.addresses(&c.Bind) }},
	"cluster":    {once: true, read: readCluster},
	"dataplane":  {once: true, read: readDataplane},
	"failclosed": {once: true, read: func(c *Config, s stanza) error { return set("", &c.FailClosed, stanza.bare).read(s) }},
	"failsafe":   {read: readFailsafe},
	"follow":     {once: true, read: readFollow},
	"grant":      {once: true, read: readGrant},
	"hold": {once: true, read: func(c *Config, s stanza) error {
		return bounded("hold", "10m", &c.Hold, 0, 24*time.Hour, stanza.span).read(s)
	}},
	"intercept":   {read: func(c *Config, s stanza) error { return s.addresses(&c.Intercept) }},
	"limits":      {once: true, block: true, read: readLimits},
	"mark":        {once: true, read: readMark},
	"nat64":       {read: readNAT64},
	"rebind":      {read: readRebind},
	"search":      {read: readSearch},
	"servernames": {once: true, block: true, read: readServerNames},
	"ttl":         {once: true, read: readTTL},
}

// addresses appends the arguments, at least one, to those there are.
func (s stanza) addresses(have *[]netip.Addr) error {
	if len(s.args) == 0 {
		return s.errorf("has no address, write at least one")
	}
	for _, arg := range s.args {
		a, err := netip.ParseAddr(arg)
		if err != nil {
			return s.errorf("%q is not an address, write an IPv4 or IPv6 address without port", arg)
		}
		a = a.Unmap()
		if a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
			return s.errorf("%q cannot be one host's, write a unicast address without zone", arg)
		}
		if slices.Contains(*have, a) {
			return s.errorf("%s is there twice, write it once", a)
		}
		*have = append(*have, a)
	}
	return nil
}

func readCluster(c *Config, s stanza) error {
	if len(s.args) == 0 {
		return s.errorf(`has no domain, write for example "cluster cluster.local 10.244.0.0/16 10.96.0.0/12"`)
	}
	domain, err := s.domain(s.args[0])
	if err != nil {
		return err
	}
	c.ClusterDomain = domain
	if len(s.args) > 1 {
		c.ClusterRanges, err = each(s, s.args[1:], "", s.prefix)
	}
	return err
}

// domain reads a name that is not the root.
func (s stanza) domain(arg string) (fqdn.Name, error) {
	n, err := fqdn.ParseName(arg)
	if err != nil {
		return "", s.errorf("%w, write a domain such as example.org", err)
	}
	if n == "" {
		return "", s.errorf("%q is every name there is, write a domain such as example.org", arg)
	}
	return n, nil
}

// network reads a range, or an address.
func (s stanza) network(arg string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(arg); err == nil && a.Zone() == "" {
		arg = netip.PrefixFrom(a, a.BitLen()).String()
	}
	return s.prefix(arg)
}

func (s stanza) prefix(arg string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(arg)
	if err != nil || p.Addr().Is4In6() {
		return p, s.errorf("%q is not a range, write ADDRESS/BITS such as 10.96.0.0/12", arg)
	}
	if p != p.Masked() {
		return p, s.errorf("%s has bits set beyond its length, write %s instead", p, p.Masked())
	}
	return p, nil
}

func readSearch(c *Config, s stanza) error {
	names, err := each(s, s.args, "has no suffix, write at least one domain", s.domain)
	c.Search = append(c.Search, names...)
	return err
}

// readNAT64 takes the prefix lengths that RFC 6052 §2.2 knows.
func readNAT64(c *Config, s stanza) error {
	prefixes, err := each(s, s.args, `has no range, write for example "nat64 2001:db8:64::/96"`, func(arg string) (netip.Prefix, error) {
		p, err := s.prefix(arg)
		if err == nil && (!p.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits())) {
			err = s.errorf("%s cannot be a translation prefix, write an IPv6 range of 32, 40, 48, 56, 64 or 96 bits", p)
		}
		return p, err
	})
	c.NAT64 = append(c.NAT64, prefixes...)
	return err
}

func readDataplane(c *Config, s stanza) error {
	arg, err := s.word("dataplane auto", "a dataplane", string(Auto), string(IPTables), string(NFTables))
	c.Dataplane = Dataplane(arg)
	return err
}

// defaultMarks are the bits Mark, Candidate and Accepted of Config.
var defaultMarks = [...]uint32{0x40, 0x20, 0x10}

func readMark(c *Config, s stanza) error {
	if len(s.args) < 1 || len(s.args) > 3 {
		return s.errorf("has %d values instead of one to three, write \"mark 0x40\" or \"mark 0x40 0x20 0x10\"", len(s.args))
	}
	var bits []uint32
	for _, arg := range s.args {
		m, err := strconv.ParseUint(arg, 0, 32)
		if err != nil || m == 0 || m&(m-1) != 0 {
			return s.errorf("%q is not one bit of 32, write for example \"mark 0x40\"", arg)
		}
		bits = append(bits, uint32(m))
	}
	for len(bits) < len(defaultMarks) {
		free := slices.DeleteFunc(append([]uint32{defaultMarks[len(bits)]}, defaultMarks[:]...), func(bit uint32) bool { return slices.Contains(bits, bit) })
		bits = append(bits, free[0])
	}
	if len(slices.Compact(slices.Sorted(slices.Values(bits)))) < len(bits) {
		return s.errorf("has one bit twice, write other bits, as in \"mark 0x40 0x20 0x10\"")
	}
	c.Mark, c.Candidate, c.Accepted = bits[0], bits[1], bits[2]
	return nil
}

func readGrant(c *Config, s stanza) (err error) {
	const usage = "grant timeout 500ms"
	if len(s.args) != 2 || s.args[0] != "timeout" {
		return s.errorf("is not understood, write %q", usage)
	}
	s.args = s.args[1:]
	c.GrantTimeout, err = only(s, usage, 10*time.Millisecond, 4*time.Second, stanza.span)
	return err
}

func readLimits(c *Config, s stanza) error {
	if len(s.args) > 0 || len(s.block) == 0 {
		return s.errorf(`is a block, write "limits { … }" with one bound a line`)
	}
	l := &c.Limits
	return s.options("a bound", nil,
		number("queries", "100", &l.Queries, 1, 1<<20), number("queries_per_pod", "100", &l.QueriesPerPod, 1, 1<<20),
		number("rate_per_pod", "100", &l.RatePerPod, 1, 1<<20), number("burst_per_pod", "100", &l.BurstPerPod, 1, 1<<20),
		number("connections", "100", &l.Connections, 1, 1<<20), number("connections_per_pod", "100", &l.ConnectionsPerPod, 1, 1<<20),
		number("addresses", "100", &l.Addresses, 1, 4096),
		number("grants", "100", &l.Grants, 1, 1<<20), number("grants_per_pod", "100", &l.GrantsPerPod, 1, 32768))
}

func readServerNames(c *Config, s stanza) error {
	if len(s.args) > 0 || len(s.block) == 0 {
		return s.errorf(`is a block, write "servernames { … }" with one option a line`)
	}
	n := &c.ServerNames
	return s.options("an option of servernames", nil,
		number("port", "9955", &n.Port, 1, math.MaxUint16),
		number("connections", "8192", &n.Connections, 1, 1<<16), number("connections_per_pod", "1024", &n.ConnectionsPerPod, 1, 1<<16),
		number("hellos", "1024", &n.Hellos, 1, 1<<16), number("hellos_per_pod", "64", &n.HellosPerPod, 1, 1<<16),
		bounded("grace", "30s", &n.Grace, 0, time.Hour, stanza.span))
}
