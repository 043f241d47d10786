package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// ReasonResolver is the reason of the host's resolvers.
const ReasonResolver = "resolver of the host"

// The ports of DNS (RFC 1035) and of DNS over TLS (RFC 7858).
const dnsPort, dotPort uint16 = 53, 853

// The files with the resolvers of the host: of its programs, of systemd-resolved's uplinks,
// and of NetworkManager's.
const (
	resolvConf         = "/etc/resolv.conf"
	resolvedConf       = "/run/systemd/resolve/resolv.conf"
	networkManagerConf = "/run/NetworkManager/no-stub-resolv.conf"
)

// Resolvers are the resolvers of the host.
type Resolvers struct {
	// Targets are addresses.
	Targets []failsafe.Target
	// Local: the host asks a resolver of its own whose resolvers are not known.
	Local bool
	// Config is how programs of the host ask.
	Config ResolvConf
}

// Since returns an error if the files list no resolver any more that an earlier reading has: a program that
// writes a file may empty it first, and lists none while no link is up.
func (r *Resolvers) Since(earlier *Resolvers) error {
	switch {
	case len(earlier.Config.Servers) == 0:
	case len(r.Config.Servers) == 0:
		return fmt.Errorf("%s lists no resolver", resolvConf)
	case r.Local && !earlier.Local && slices.Equal(r.Config.Servers, earlier.Config.Servers):
		return fmt.Errorf("the resolvers behind the host's own resolver in %s are not listed", resolvConf)
	}
	return nil
}

// ResolvConf is a resolv.conf(5).
type ResolvConf struct {
	Servers []netip.Addr // with the interfaces of link-local ones
	Search  []string
	Ndots   int
}

// Resolvers reads resolv.conf, and behind a resolver on loopback the file with its resolvers.
func (r Root) Resolvers() (Resolvers, error) {
	var out Resolvers
	text, err := r.read(resolvConf)
	if err != nil {
		return out, err
	}
	out.Config = parseResolvConf(text)
	settings, err := r.systemd("resolved.conf")
	if err != nil {
		return out, err
	}
	tls := slices.Contains([]string{"yes", "true", "on", "1", "opportunistic"}, strings.ToLower(lastOf(settings, "Resolve", "DNSOverTLS")))
	if n := out.add(out.Config.Servers, resolvConf, tls); n == 0 || n < len(out.Config.Servers) {
		out.Local = true
		for _, file := range []string{resolvedConf, networkManagerConf} {
			text, there, err := r.optional(file)
			if err != nil {
				return out, err
			}
			if servers := parseResolvConf(text).Servers; there {
				out.Local = out.add(servers, file, tls) == 0 && out.Local
			}
		}
	}
	for _, server := range append(listOf(settings, "Resolve", "DNS"), listOf(settings, "Resolve", "FallbackDNS")...) {
		if to, err := parseServer(server); err == nil && !to.Addr().IsLoopback() {
			out.port(to.Addr(), to.Port(), "resolved.conf")
			if tls && to.Port() == dnsPort {
				out.target(to.Addr(), policy.TCP, dotPort, "resolved.conf")
			}
			out.Local = false
		}
	}
	return out, nil
}

// add adds the servers that are not on loopback, and returns their number.
func (r *Resolvers) add(servers []netip.Addr, file string, tls bool) (n int) {
	for _, a := range servers {
		if a.IsLoopback() {
			continue
		}
		n++
		r.port(a, dnsPort, file)
		if tls {
			r.target(a, policy.TCP, dotPort, file)
		}
	}
	return n
}

func (r *Resolvers) port(a netip.Addr, port uint16, file string) {
	r.target(a, policy.UDP, port, file)
	r.target(a, policy.TCP, port, file)
}

func (r *Resolvers) target(a netip.Addr, protocol policy.Protocol, port uint16, file string) {
	t := failsafe.Target{Host: policy.CleanAddr(a).String(), Ports: failsafe.Port(protocol, port), Reason: ReasonResolver, Source: file}
	if !slices.Contains(r.Targets, t) {
		r.Targets = append(r.Targets, t)
	}
}

// parseResolvConf reads resolv.conf(5).
func parseResolvConf(text string) (c ResolvConf) {
	c.Ndots = 1
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.ContainsAny(words[0][:1], "#;") {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil {
				c.Servers = append(c.Servers, a.Unmap())
			}
		case "domain", "search":
			c.Search = words[1:]
		case "options":
			for _, o := range words[1:] {
				if n, err := strconv.Atoi(strings.TrimPrefix(o, "ndots:")); err == nil && strings.HasPrefix(o, "ndots:") {
					c.Ndots = min(max(n, 0), 15) // as resolv.conf(5) has it
				}
			}
		}
	}
	return c
}

// parseServer reads a server of resolved.conf(5): ADDRESS[:PORT][%INTERFACE][#NAME].
func parseServer(text string) (netip.AddrPort, error) {
	text, _, _ = strings.Cut(text, "#")
	text, _, _ = strings.Cut(text, "%")
	if to, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(policy.CleanAddr(to.Addr()), to.Port()), nil
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return netip.AddrPortFrom(policy.CleanAddr(a), dnsPort), err
}

// Hosts returns the addresses of names in /etc/hosts, the names in lower case.
func (r Root) Hosts() (map[string][]netip.Addr, error) {
	text, err := r.read("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	hosts := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		a, err := netip.ParseAddr(words[0])
		if err != nil {
			continue
		}
		for _, name := range words[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			if a := policy.CleanAddr(a); !slices.Contains(hosts[name], a) {
				hosts[name] = append(hosts[name], a)
			}
		}
	}
	return hosts, nil
}
