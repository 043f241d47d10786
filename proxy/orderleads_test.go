package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/follow"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestAllNamesThatLeadCount: of names that lead to one, each counts in the place of its rule,
// whatever the order of the questions is.
func TestAllNamesThatLeadCount(t *testing.T) {
	table := map[string][]string{
		"www.test SRV": {"www.test. 100 IN SRV 0 0 443 host.test."},
		"ok.test SRV":  {"ok.test. 200 IN SRV 0 0 443 host.test."},
		"q.test SRV":   {"q.test. 300 IN CNAME alias.test.", "alias.test. 300 IN SRV 0 0 443 host.test."},
		"host.test A":  {"host.test. 600 IN A 192.0.2.1"},
	}
	const (
		accepts = "tier: Admin, priority: 5, egress: [{action: Accept, matches: [{name: ok.test}, {name: alias.test}], ports: [{protocol: TCP, port: 80}]}]"
		alias   = "tier: Admin, priority: 2, egress: [{action: Deny, matches: [{name: alias.test}], ports: [{protocol: TCP, port: 25}]}]"
	)
	names := []string{"www.test", "ok.test", "q.test"}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		l := orderLab(t, table, denyPorts, accepts, alias)
		for _, i := range order {
			l.any(strictPod, newQuery(names[i], dns.TypeSRV))
		}
		at := fmt.Sprintf("%v", order)
		for range 3 {
			l.any(strictPod, newQuery("host.test", dns.TypeA))
		}
		_, rec := l.decided(newQuery("host.test", dns.TypeA))
		if rec.Verdict != audit.Allowed || rec.Via != policytest.Name("ok.test") {
			t.Errorf("%s: %v via %q", at, rec.Verdict, rec.Via)
		}
		equal(t, at, l.kernel.entries(), []string{"a ok.test 192.0.2.1 tcp/80 +11m0s", "d alias.test 192.0.2.1 tcp/25 +24h10m0s", "d www.test 192.0.2.1 tcp/443 +24h10m0s"})
		// Each for its own time, also in kept replies. An alias leads for rules that deny alone.
		l.pass(101 * time.Second)
		l.kernel.forget(func(opening) bool { return true })
		l.any(strictPod, newQuery("host.test", dns.TypeA))
		equal(t, at+" after the first", l.kernel.entries(), []string{"a ok.test 192.0.2.1 tcp/80 +11m0s", "d alias.test 192.0.2.1 tcp/25 +24h10m0s"})
		l.pass(200 * time.Second)
		l.kernel.forget(func(opening) bool { return true })
		l.any(strictPod, newQuery("host.test", dns.TypeA))
		equal(t, at+" after all", l.kernel.entries(), nil)
	}
	// A rule that denies the name for all ports answers, also after another name led there.
	l := orderLab(t, table, "tier: Admin, priority: 1, egress: [{action: Deny, matches: [{name: www.test}]}], dns: {denied: Resolve}", accepts)
	l.any(strictPod, newQuery("ok.test", dns.TypeSRV))
	l.any(strictPod, newQuery("www.test", dns.TypeSRV))
	if _, rec := l.decided(newQuery("host.test", dns.TypeA)); rec.Verdict != audit.NameDenied || rec.Via != policytest.Name("www.test") || rec.Rule.Policy != "c0" {
		t.Errorf("%v via %q", rec.Verdict, rec.Via)
	}
}

// TestNoRoomForDeniedLeads: the answer of a denied name that leads to more names than there is
// room for is SERVFAIL. One that is accepted leads to fewer.
func TestNoRoomForDeniedLeads(t *testing.T) {
	table := map[string][]string{}
	for i := range follow.MaxNames + 1 {
		n := itoa(1000+i) + ".test."
		table["www.test SRV"] = append(table["www.test SRV"], "www.test. 600 IN SRV 0 0 443 "+n)
		table["ok.test SRV"] = append(table["ok.test SRV"], "ok.test. 600 IN SRV 0 0 443 "+n)
	}
	table["one.www.test SRV"] = []string{"one.www.test. 600 IN SRV 0 0 443 host.test."}
	table["host.test A"] = []string{"host.test. 600 IN A 192.0.2.1"}
	deny := "tier: Admin, priority: 1, egress: [{action: Deny, matches: [{pattern: '**.www.test'}, {name: www.test}], ports: [{protocol: TCP, port: 443}]}]"
	l := orderLab(t, table, deny, "tier: Admin, priority: 2, egress: [{action: Accept, matches: [{name: ok.test}]}]")
	pod := labPods[2].PodRef
	followed := func() (count int) {
		for i := range follow.MaxNames + 1 {
			if len(l.s.followed.Find(pod, policytest.Name(itoa(1000+i)+".test"))) > 0 {
				count++
			}
		}
		return count
	}
	for range 3 {
		if r, _ := l.decided(newQuery("ok.test", dns.TypeSRV)); len(r.Answer) == 0 || followed() != follow.MaxNames {
			t.Fatalf("%d records, %d names", len(r.Answer), followed())
		}
	}
	for range 3 {
		l.any(strictPod, newQuery("one.www.test", dns.TypeSRV))
		l.any(strictPod, newQuery("host.test", dns.TypeA))
		equal(t, "a denied name among many", l.kernel.entries(), []string{"d one.www.test 192.0.2.1 tcp/443 +24h10m0s"})
	}
	for range 3 {
		if r, rec := l.decided(newQuery("www.test", dns.TypeSRV)); r.Rcode != dns.RcodeServerFailure || len(r.Answer) > 0 || rec.Verdict != audit.Failed {
			t.Fatalf("%s with %d records, logged %v", dns.RcodeToString[r.Rcode], len(r.Answer), rec.Verdict)
		}
	}
	if led := l.s.followed.Find(pod, policytest.Name("host.test")); len(led) != 1 {
		t.Errorf("the denied name does not lead any more: %v", led)
	}
}

// TestRulesThatCoverATargetNeedNoLead: however many names of such a rule lead to one target, each
// is answered, and the rule counts for the target.
func TestRulesThatCoverATargetNeedNoLead(t *testing.T) {
	table := map[string][]string{"mx.test A": {"mx.test. 600 IN A 192.0.2.1"}}
	for i := range 2 * follow.MaxLeads {
		n := "d" + itoa(i) + ".test"
		table[n+" MX"] = []string{n + ". 600 IN MX 10 mx.test."}
	}
	l := orderLab(t, table, "tier: Admin, priority: 1, egress: [{action: Deny, matches: [{pattern: '**.test'}], ports: [{protocol: TCP, port: 25}]}]")
	for i := range 2 * follow.MaxLeads {
		if r, rec := l.decided(newQuery("d"+itoa(i)+".test", dns.TypeMX)); len(r.Answer) != 1 || rec.Verdict == audit.Failed {
			t.Fatalf("%d: %s, logged %v: %s", i, dns.RcodeToString[r.Rcode], rec.Verdict, rec.Error)
		}
	}
	l.any(strictPod, newQuery("mx.test", dns.TypeA))
	equal(t, "the target", l.kernel.entries(), []string{"d mx.test 192.0.2.1 tcp/25 +24h10m0s"})
}

// TestGuardOfEachNameThatLeads: an exception of the guard for one name opens no address for the
// rules of another.
func TestGuardOfEachNameThatLeads(t *testing.T) {
	table := map[string][]string{
		"app.ingress.test SRV": {"app.ingress.test. 600 IN SRV 0 0 443 host.test."},
		"www.test SRV":         {"www.test. 600 IN SRV 0 0 443 host.test."},
		"host.test A":          {"host.test. 600 IN A 10.96.7.9"},
	}
	rule := func(name string, port int) string {
		return fmt.Sprintf("tier: Admin, priority: %d, egress: [{action: Accept, matches: [{name: %s}], ports: [{protocol: TCP, port: %d}]}]", port, name, port)
	}
	for _, order := range [][]string{{"app.ingress.test", "www.test"}, {"www.test", "app.ingress.test"}} {
		for first, want := range map[string][]string{
			"app.ingress.test": {"a app.ingress.test 10.96.7.9 tcp/1 +11m0s"},
			"www.test":         nil, // the guard judges the addresses for the name of the first rule
		} {
			rest := order[1-slices.Index(order, first)]
			l := orderLab(t, table, rule(first, 1), rule(rest, 2))
			for _, n := range order {
				l.any(strictPod, newQuery(n, dns.TypeSRV))
			}
			for range 4 {
				l.any(strictPod, newQuery("host.test", dns.TypeA))
			}
			equal(t, fmt.Sprint(order, " first ", first), l.kernel.entries(), want)
		}
	}
}

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
	fatal.If(t, l.s.WarmNames(t.Context(), v, []fqdn.Name{policytest.Name("www.test")}))
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
		fatal.If(t, l.s.Warm(t.Context(), []*policy.View{l.s.snapshot.Load().ViewOf(labPods[2].PodRef)}))
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
		fatal.If(t, l.s.WarmNames(t.Context(), l.s.snapshot.Load().ViewOf(labPods[2].PodRef), []fqdn.Name{policytest.Name("www.test")}))
		for _, o := range l.kernel.entries() {
			diff.Has(t, "192.0.2.1", o, spec)
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
