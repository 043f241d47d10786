package proxy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

var (
	kubeDNS  = policy.ServiceRef{Namespace: "kube-system", Name: "kube-dns"}
	otherDNS = policy.ServiceRef{Namespace: "corp", Name: "dns"}
)

func ports(list ...string) (out []netip.AddrPort) {
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

// TestUpstreamsOfServices: endpoints first, the Services' own addresses at port 53
// last, each once, and never the agent itself.
func TestUpstreamsOfServices(t *testing.T) {
	c := corefile.Default()
	resolvers := map[policy.ServiceRef]policy.Resolver{
		kubeDNS:  {ClusterIPs: addrsOf("10.96.0.10", "2001:db8:42::10"), Endpoints: ports("10.1.0.5:8053", "[2001:db8:1::5]:8053")},
		otherDNS: {ClusterIPs: addrsOf("::ffff:10.96.0.10", "169.254.20.53"), Endpoints: ports("[::ffff:10.1.0.5]:8053", "169.254.20.53:53", "10.1.0.6:53", "169.254.20.64:53")},
	}
	for _, tt := range []struct{ forward, first, last string }{
		{"kube-dns.kube-system", "[10.1.0.5:8053 [2001:db8:1::5]:8053]", "[10.96.0.10:53 [2001:db8:42::10]:53]"},
		{"dns.corp", "[10.1.0.5:8053 10.1.0.6:53]", "[10.96.0.10:53]"},
		{"dns.corp kube-dns.kube-system", "[10.1.0.5:8053 10.1.0.6:53 [2001:db8:1::5]:8053]", "[10.96.0.10:53 [2001:db8:42::10]:53]"},
		{"192.0.2.1 kube-dns.kube-system 10.96.0.10", "[192.0.2.1:53 10.1.0.5:8053 [2001:db8:1::5]:8053 10.96.0.10:53]", "[[2001:db8:42::10]:53]"},
		{"192.0.2.9 kube-dns.kube-system 192.0.2.8", "[192.0.2.9:53 10.1.0.5:8053 [2001:db8:1::5]:8053 192.0.2.8:53]", "[10.96.0.10:53 [2001:db8:42::10]:53]"},
		{"dns.corp 192.0.2.1 kube-dns.kube-system", "[10.1.0.5:8053 10.1.0.6:53 192.0.2.1:53 [2001:db8:1::5]:8053]", "[10.96.0.10:53 [2001:db8:42::10]:53]"},
		{"absent.corp", "[]", "[]"},
	} {
		parsed, err := corefile.Parse("Corefile", ". {\nforward . "+tt.forward+"\n}")
		fatal.If(t, err)
		first, last := Cluster{Resolvers: resolvers}.upstreams(c, &parsed.Zones[0])
		if fmt.Sprint(first) != tt.first && len(first) > 0 || fmt.Sprint(last) != tt.last && len(last) > 0 || (tt.first == "[]") != (len(first) == 0) {
			t.Errorf("%s: asks %v, then %v", tt.forward, first, last)
		}
	}
}

// serviceZone is a root zone that follows kubeDNS.
func serviceZone() corefile.Zone {
	z := zoneOf()
	z.Services, z.Before = []policy.ServiceRef{kubeDNS}, []int{0}
	return z
}

func endpointsAt(ups ...*scripted) map[policy.ServiceRef]policy.Resolver {
	var r policy.Resolver
	for _, u := range ups {
		r.Endpoints = append(r.Endpoints, u.Addr)
	}
	return map[policy.ServiceRef]policy.Resolver{kubeDNS: r}
}

// TestServiceIsFollowed: the upstreams are the current ones.
func TestServiceIsFollowed(t *testing.T) {
	l := newLab(t, nil)
	l.live(serviceZone())
	one, two, three := startScript(t, honest("192.0.2.1")), startScript(t, honest("192.0.2.2")), startScript(t, honest("192.0.2.3"))
	answers := func(want string) {
		t.Helper()
		if r := l.ask("10.1.0.6", "example.org", dns.TypeA); len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != want {
			t.Errorf("%v, want %s", r, want)
		}
	}
	l.s.SetCluster(Cluster{Resolvers: endpointsAt(one, two)})
	answers("192.0.2.1")
	l.s.SetCluster(Cluster{Resolvers: endpointsAt(two, three)})
	answers("192.0.2.2")
	setup := l.s.setup.Load()
	l.s.SetCluster(Cluster{Resolvers: endpointsAt(two, three)})
	diff.Equal(t, setup, l.s.setup.Load(), "the setup when nothing changed")
	l.s.SetCluster(Cluster{Resolvers: endpointsAt(three)})
	answers("192.0.2.3")
	l.live(zoneOf(one))
	answers("192.0.2.1")
	if all := l.s.Upstreams(); len(all) != 1 || all[0].Up != 1 {
		t.Errorf("upstreams %v", all)
	}
	l.live(serviceZone()) // the cluster is known still
	answers("192.0.2.3")
}

// TestServiceGoneIsServfail: a Service without an address does not end in silence.
func TestServiceGoneIsServfail(t *testing.T) {
	l := newLab(t, nil)
	z := serviceZone()
	z.Deadline = 50 * time.Millisecond
	l.live(z)
	for _, pod := range []string{"10.1.0.6", "10.1.0.2"} {
		wantCode(t, dns.RcodeServerFailure, l.ask(pod, "www.example.org", dns.TypeA), pod)
	}
}

// TestReconfiguredInFlight: a query whose zone is removed, or gets other upstreams,
// continues by the new configuration.
func TestReconfiguredInFlight(t *testing.T) {
	for _, zone := range []string{".", "corp.test"} {
		gate, reached := make(chan struct{}), make(chan struct{}, 8)
		stuck := startScript(t, func(*dns.Msg, bool) [][]byte { reached <- struct{}{}; <-gate; return nil })
		z := zoneOf(stuck)
		z.Name, z.MaxFails, z.Timeout, z.Deadline = policytest.Name(zone), 0, 5*time.Minute, 10*time.Minute
		zs := []corefile.Zone{z}
		if zone != "." {
			zs = append(zs, zoneOf(stuck))
		}
		l := newLab(t, nil)
		l.live(zs...)
		reply := make(chan *dns.Msg)
		go func() { reply <- l.ask("10.1.0.6", "x.corp.test", dns.TypeA) }()
		<-reached
		began := time.Now()
		l.live(zoneOf(startScript(t, honest("192.0.2.7"))))
		if r := <-reply; len(r.Answer) != 1 || time.Since(began) > time.Minute {
			t.Errorf("zone %s: %v after %v", zone, r, time.Since(began))
		}
		close(gate)
	}
}

// TestRangesAreGuarded: an outside name does not open an address that a pod of
// another node may have.
func TestRangesAreGuarded(t *testing.T) {
	l := newLab(t, nil)
	ask := func() string {
		return l.s.setup.Load().guard.Blocked(policytest.Name("www.example.org"), mustAddr("10.77.3.4"), l.s.snapshot.Load())
	}
	diff.Equal(t, "", ask(), "blocked before the ranges are known")
	l.s.SetCluster(Cluster{Ranges: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}})
	diff.Equal(t, "cluster", ask(), "blocked")
	if got := l.s.setup.Load().guard.Blocked(policytest.Name("x.shop.svc.cluster.local"), mustAddr("10.77.3.4"), l.s.snapshot.Load()); got != "" {
		t.Errorf("a cluster name is blocked: %s", got)
	}
}

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
			diff.Error(t, step.want, got, "with the resolvers", step.resolvers, "the answer")
		}
	}
	diff.Equal(t, 1, l.upstreamAsked(), "questions to the upstream")
}
