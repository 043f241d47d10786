package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/policytest"
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

// TestRefusedNamesAreNotWarmed: no address counts that the owner of a refused name chooses, also
// where it is an alias of an accepted name or a namespace accepts it. The agent asks no upstream
// for it.
func TestRefusedNamesAreNotWarmed(t *testing.T) {
	table := map[string][]string{
		"www.test A": {"www.test. 100 IN A 192.0.2.1"}, "www.test AAAA": {"www.test. 100 IN AAAA 2001:db8::1"},
		"led.test A": {"led.test. 100 IN CNAME www.test.", "www.test. 100 IN A 192.0.2.2"}, "led.test AAAA": {},
	}
	for _, more := range []string{"", ", dns: {denied: Refuse}"} {
		l := orderLab(t, table, denyAll+more, strings.Replace(denyPorts, "priority: 1", "priority: 2", 1),
			"tier: Admin, priority: 9, egress: [{action: Accept, matches: [{name: led.test}, {name: www.test}]}]")
		if err := l.s.Warm(t.Context(), []*policy.View{l.s.snapshot.Load().ViewOf(labPods[2].PodRef)}); err != nil {
			t.Fatal(err)
		}
		equal(t, "the entries", l.kernel.entries(), nil)
		if n := l.upstreamAsked(); n != 2 { // A and AAAA of led.test
			t.Errorf("the upstream was asked %d times", n)
		}
		for _, n := range []string{"www.test", "led.test"} {
			if r, rec := l.decided(newQuery(n, dns.TypeA)); r.Rcode == dns.RcodeSuccess || len(r.Answer) > 0 || rec.Verdict != audit.NameDenied {
				t.Errorf("%s: %v, logged %v", n, r, rec.Verdict)
			}
		}
	}
}

// TestWarmUpsDenyNothingInsideTheCluster: the owner of a denied name cannot deny pods that ask
// nothing an address inside the cluster.
func TestWarmUpsDenyNothingInsideTheCluster(t *testing.T) {
	inside := map[string][]string{"www.test A": {"www.test. 100 IN A 192.0.2.1", "www.test. 100 IN A 10.96.7.9"}, "www.test AAAA": {}}
	for _, spec := range []string{showDenied, denyPorts} {
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
		e := l.answers().cache.Get(wire.Query{Question: wire.Question{Name: policytest.Name("www.test"), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD})
		if noted := l.answers().cache.Clients(e); len(noted) == 0 {
			t.Errorf("%s: noted %v", spec, noted)
		}
		if l.any(strictPod, newQuery("www.test", dns.TypeA)); len(l.kernel.entries()) != 2 {
			t.Errorf("%s, asked: %v", spec, l.kernel.entries())
		}
	}
}
