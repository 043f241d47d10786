package proxy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

// TestGuardFollowsResolvers: a resolver that appears while the agent runs is closed to
// outside names immediately, for cached answers too; a removed one is open again.
func TestGuardFollowsResolvers(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 300 IN A 192.0.2.8", "www.example.org. 300 IN A 192.0.2.9"}})
	of := func(addrs ...string) map[policy.ServiceRef]policy.Resolver {
		r := policy.Resolver{ClusterIPs: addrsOf("10.96.0.10")}
		for _, a := range addrs {
			r.Endpoints = append(r.Endpoints, netip.AddrPortFrom(mustAddr(a), 53))
		}
		return map[policy.ServiceRef]policy.Resolver{kubeDNS: r}
	}
	for _, step := range []struct {
		resolvers map[policy.ServiceRef]policy.Resolver
		want      []string
	}{
		{nil, []string{"192.0.2.8", "192.0.2.9"}},
		{of("192.0.2.8"), []string{"192.0.2.9"}},
		{of("::ffff:192.0.2.9"), []string{"192.0.2.8"}},
		{of(), []string{"192.0.2.8", "192.0.2.9"}},
	} {
		c := labCluster
		c.Resolvers = step.resolvers
		l.s.SetCluster(c)
		for range 3 { // the last at least is from the cache
			r, _ := l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
			var got []string
			for _, rr := range r.Answer {
				got = append(got, rr.(*dns.A).A.String())
			}
			if !slices.Equal(got, step.want) {
				t.Errorf("with the resolvers %v the answer is %v, want %v", step.resolvers, got, step.want)
			}
		}
	}
	if n := l.upstreamAsked(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}
