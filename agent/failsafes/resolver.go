package failsafes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
)

const (
	// tryTimeout bounds one query to one server: resolv.conf(5)'s 5 s are too long for three
	// servers within lookupTimeout.
	tryTimeout = 2 * time.Second
	// hostsTTL is how long a line of /etc/hosts counts.
	hostsTTL = time.Minute
	// halfTTL is how long an answer counts of which one family is missing after an error.
	halfTTL = 30 * time.Second
)

// HostResolver resolves names as the host's programs do: by /etc/hosts, then by the servers of
// /etc/resolv.conf in their order, with its search list.
type HostResolver struct {
	root   hostfiles.Root
	dialer *net.Dialer
	port   string
}

// NewHostResolver returns a Resolver on the host's files. Queries are sent through dialer.
func NewHostResolver(host fs.FS, dialer *net.Dialer) *HostResolver {
	return &HostResolver{hostfiles.New(host), dialer, "53"}
}

// Lookup implements Resolver.
func (r *HostResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	hosts, err := r.root.Hosts()
	if err != nil {
		return nil, 0, err
	}
	if addrs := hosts[strings.ToLower(strings.TrimSuffix(name, "."))]; len(addrs) > 0 {
		return addrs, hostsTTL, nil
	}
	resolvers, err := r.root.Resolvers()
	if err != nil {
		return nil, 0, err
	}
	config := resolvers.Config
	if len(config.Servers) == 0 {
		config.Servers = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // resolv.conf(5)
	}
	failed := ErrNoAddresses
	for _, candidate := range candidates(name, config) {
		addrs, ttl, err := r.both(ctx, candidate, config.Servers)
		if err == nil {
			return addrs, ttl, nil
		}
		if !errors.Is(err, ErrNoAddresses) {
			failed = err
		}
	}
	return nil, 0, failed
}

// candidates are the names to ask for a name, in the order of resolv.conf(5).
func candidates(name string, c hostfiles.ResolvConf) (names []string) {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	for _, domain := range c.Search {
		names = append(names, dns.Fqdn(name+"."+strings.Trim(domain, ".")))
	}
	if strings.Count(name, ".") >= c.Ndots {
		return append([]string{dns.Fqdn(name)}, names...)
	}
	return append(names, dns.Fqdn(name))
}

// both asks for addresses of both families at once.
func (r *HostResolver) both(ctx context.Context, name string, servers []netip.Addr) (addrs []netip.Addr, ttl time.Duration, err error) {
	var answers [2]lookup
	var asking sync.WaitGroup
	for i, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		asking.Go(func() {
			a := &answers[i]
			a.addrs, a.ttl, a.err = r.ask(ctx, name, kind, servers)
		})
	}
	asking.Wait()
	ttl = maxTTL
	for _, a := range answers {
		if a.err != nil {
			err = a.err
		} else if len(a.addrs) > 0 {
			addrs, ttl = append(addrs, a.addrs...), min(ttl, a.ttl)
		}
	}
	switch {
	case len(addrs) > 0 && err != nil:
		return addrs, min(ttl, halfTTL), nil
	case len(addrs) == 0 && err == nil:
		err = ErrNoAddresses
	}
	return addrs, ttl, err
}

// ask asks the servers in their order until one answers. NXDOMAIN is an answer.
func (r *HostResolver) ask(ctx context.Context, name string, kind uint16, servers []netip.Addr) (addrs []netip.Addr, ttl time.Duration, err error) {
	for _, server := range servers {
		reply, failed := r.exchange(ctx, name, kind, net.JoinHostPort(server.String(), r.port))
		switch {
		case failed != nil:
			err = fmt.Errorf("no answer from the resolver %s", server)
		case reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
			err = fmt.Errorf("the resolver %s answers %s", server, rcode(reply.Rcode))
		default:
			addrs, ttl = records(reply)
			return addrs, ttl, nil
		}
	}
	return nil, 0, err
}

func rcode(n int) string {
	if text, ok := dns.RcodeToString[n]; ok {
		return text
	}
	return "rcode " + strconv.Itoa(n)
}

// exchange asks one server, over TCP if its answer does not fit a packet.
func (r *HostResolver) exchange(ctx context.Context, name string, kind uint16, server string) (reply *dns.Msg, err error) {
	q := new(dns.Msg).SetQuestion(name, kind)
	for _, network := range []string{"udp", "tcp"} {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		c := dns.Client{Net: network, Dialer: r.dialer, Timeout: tryTimeout}
		reply, _, err = c.ExchangeContext(try, q, server)
		cancel()
		if err != nil || !reply.Truncated {
			return reply, err
		}
	}
	return reply, err
}

// records returns the addresses of an answer, and the least TTL of their chain.
func records(reply *dns.Msg) (addrs []netip.Addr, ttl time.Duration) {
	least := uint32(maxTTL / time.Second)
	for _, rr := range reply.Answer {
		least = min(least, rr.Header().Ttl)
		switch rr := rr.(type) {
		case *dns.A:
			if a, ok := netip.AddrFromSlice(rr.A.To4()); ok {
				addrs = append(addrs, a)
			}
		case *dns.AAAA:
			if a, ok := netip.AddrFromSlice(rr.AAAA); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, time.Duration(least) * time.Second
}
