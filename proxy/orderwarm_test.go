package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/policytest"
	"github.com/namegate/namegate/proxy/wire"
)

// TestPrefetchedAnswersAreDenied: a renewed answer is entered for a pod that cluster policies
// alone select.
func TestPrefetchedAnswersAreDenied(t *testing.T) {
	l := orderLab(t, map[string][]string{"www.test A": {"www.test. 100 IN A 192.0.2.1"}}, denyPorts)
	q := newQuery("www.test", dns.TypeA)
	l.any(strictPod, q)
	l.says("www.test A", "www.test. 100 IN A 192.0.2.2")
	l.pass(85 * time.Second)
	for range 4 {
		l.any("192.0.2.250", q) // a client that no policy selects
		l.settle()
	}
	if l.s.stats.Prefetches.Load() != 1 || l.kernel.until(labPods[2].PodRef, mustAddr("192.0.2.2")).IsZero() {
		t.Errorf("entries %q", l.kernel.entries())
	}
}

// TestWarmUpsEnterAddresses of pods that a cluster policy alone isolates in no way.
func TestWarmUpsEnterAddresses(t *testing.T) {
	l := orderLab(t, map[string][]string{"www.test A": {"www.test. 100 IN A 192.0.2.1"}, "www.test AAAA": {}}, denyPorts)
	v := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	if err := l.s.WarmNames(t.Context(), v, []fqdn.Name{policytest.Name("www.test")}); err != nil {
		t.Fatal(err)
	}
	equal(t, "the entries", l.kernel.entries(), []string{"d www.test 192.0.2.1 tcp/443 +24h1m40s"})
}

// TestWarmUpsOfDeniedNames: a name that pods are not told has its addresses entered too, as
// pods may know them from before, also where an alias is denied. A question of the pod asks no
// upstream all the same.
func TestWarmUpsOfDeniedNames(t *testing.T) {
	table := map[string][]string{
		"www.test A": {"www.test. 100 IN A 192.0.2.1"}, "www.test AAAA": {"www.test. 100 IN AAAA 2001:db8::1"},
		"led.test A": {"led.test. 100 IN CNAME www.test.", "www.test. 100 IN A 192.0.2.2"}, "led.test AAAA": {},
	}
	names := []fqdn.Name{policytest.Name("led.test"), policytest.Name("www.test")}
	for _, spec := range []string{denyAll, denyAll + ", dns: {denied: Refuse}"} {
		l := orderLab(t, table, spec, "tier: Admin, priority: 9, egress: [{action: Accept, matches: [{name: led.test}]}]")
		if err := l.s.WarmNames(t.Context(), l.s.snapshot.Load().ViewOf(labPods[2].PodRef), names); err != nil {
			t.Fatal(err)
		}
		equal(t, spec, l.kernel.entries(), []string{"d www.test 192.0.2.1 any +24h1m40s", "d www.test 192.0.2.2 any +24h1m40s", "d www.test 2001:db8::1 any +24h1m40s"})
		for _, n := range []string{"www.test", "led.test"} {
			if r, rec := l.decided(newQuery(n, dns.TypeA)); r.Rcode == dns.RcodeSuccess || len(r.Answer) > 0 || rec.Verdict != audit.NameDenied {
				t.Errorf("%s: %v, logged %v", n, r, rec.Verdict)
			}
		}
	}
}

// TestWarmUpsDenyNothingInsideTheCluster: the owner of a denied name cannot deny pods that ask
// nothing an address inside the cluster. No pod is noted, which would be logged as asking.
func TestWarmUpsDenyNothingInsideTheCluster(t *testing.T) {
	inside := map[string][]string{"www.test A": {"www.test. 100 IN A 192.0.2.1", "www.test. 100 IN A 10.96.7.9"}, "www.test AAAA": {}}
	for _, spec := range []string{denyAll, showDenied, denyPorts} {
		l := orderLab(t, inside, spec)
		if err := l.s.WarmNames(t.Context(), l.s.snapshot.Load().ViewOf(labPods[2].PodRef), []fqdn.Name{policytest.Name("www.test")}); err != nil {
			t.Fatal(err)
		}
		for _, o := range l.kernel.entries() {
			if !strings.Contains(o, "192.0.2.1") {
				t.Errorf("%s: %s", spec, o)
			}
		}
		if len(l.kernel.entries()) != 1 {
			t.Errorf("%s: %v", spec, l.kernel.entries())
		}
		e := l.s.cache.Get(wire.Query{Question: wire.Question{Name: policytest.Name("www.test"), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD})
		if noted := l.s.cache.Clients(e); (spec == denyAll) != (len(noted) == 0) {
			t.Errorf("%s: noted %v", spec, noted)
		}
		if l.any(strictPod, newQuery("www.test", dns.TypeA)); spec != denyAll && len(l.kernel.entries()) != 2 {
			t.Errorf("%s, asked: %v", spec, l.kernel.entries())
		}
	}
}
