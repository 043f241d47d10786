package names

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

var example = &Environment{Options: Options{
	Zone: "zone.test", ClusterDomain: "cluster.local", Outside: netip.MustParsePrefix("198.19.7.9/16"), Outside6: netip.MustParsePrefix("2001:db8:19::/64"),
}}

// TestZone: the zone can be read, each name has addresses of its own, all of them outside,
// and none has that of the connections that have to fail.
func TestZone(t *testing.T) {
	owners, count := map[string]string{example.at(nowhereAt).String(): "no name"}, map[string]int{}
	p := dns.NewZoneParser(strings.NewReader(example.zone()), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		name := rr.Header().Name
		count[name+dns.TypeToString[rr.Header().Rrtype]]++
		if _, alias := rr.(*dns.CNAME); alias {
			continue
		}
		addr := netip.MustParseAddr(dns.Field(rr, 1))
		require.Truef(t, example.Outside.Masked().Contains(addr) || example.Outside6.Contains(addr), "%s of %s", addr, name)
		require.Emptyf(t, owners[addr.String()], "%s of %s has another name too", addr, name)
		owners[addr.String()] = name
	}
	require.NoError(t, p.Err())
	for name, want := range map[string]int{"many.zone.test.A": many, "blog.many.zone.test.A": many, "exact.zone.test.A": 1, "exact.zone.test.AAAA": 1, "alias.zone.test.CNAME": 1} {
		require.Equal(t, want, count[name], name)
	}
	require.NotContains(t, example.zone(), example.at(forgedAt).String())
	require.Contains(t, example.forged(), example.at(forgedAt).String())
}

// TestTests: the tests can be told apart, and have features that a report knows.
func TestTests(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range example.Tests() {
		require.False(t, seen[c.ShortName], c.ShortName)
		seen[c.ShortName] = true
		require.NotEmpty(t, c.Description, c.ShortName)
		require.True(t, slices.Contains(c.Features, SupportDomainNames), c.ShortName)
		for _, f := range c.Features {
			require.Contains(t, Features, f, c.ShortName)
		}
	}
}
