package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

const limitedPolicies = `
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "**.wild.test"}]
  dns: {types: [A, AAAA, MX], maxLabels: 3, maxQueryRate: 2}
---
metadata: {name: quiet, namespace: shop}
spec:
  podSelector: {matchLabels: {app: quiet}}
  egress:
  - matches: [{pattern: "**.wild.test"}]
---
metadata: {name: strict, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress:
  - matches: [{pattern: "**.wild.test"}]
  dns: {types: [TXT], unmatched: Refuse, maxLabels: 3}
`

// limitedLab has an upstream that answers every A query, and TXT.
func limitedLab(t *testing.T, more ...string) *cacheLab {
	t.Helper()
	table := map[string][]string{"www.example.org TXT": {`www.example.org. 60 IN TXT "x"`}, "a.wild.test TXT": {`a.wild.test. 60 IN TXT "x"`}, "www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}}
	for i := range 20 {
		for _, name := range []string{"n%d.wild.test", "n%d.b.wild.test", "n%d.other.test", "n%d.shop.svc.cluster.local", "n%d.wild.test.corp.test"} {
			name = fmt.Sprintf(name, i)
			table[name+" A"] = []string{name + ". 60 IN A 192.0.2.7"}
		}
	}
	l := newCacheLab(t, table, more...)
	l.s.Publish(compiled(t, limitedPolicies, labPods))
	return l
}

const webPod, quietPod, typedPod = "10.1.0.2", "10.1.0.3", "10.1.0.4"

// expect asks a name and compares the response code, the answer's records, the limit in the
// log and whether an upstream was asked.
func (l *cacheLab) expect(from, ask string, rcode, records int, limit policy.Limit, upstream bool) {
	l.t.Helper()
	name, qtype, _ := strings.Cut(ask, " ")
	l.upstreamAsked()
	m := newQuery(name, dns.StringToType[qtype])
	m.SetEdns0(1232, false)
	r, hit := l.any(from, m)
	if r.Rcode != rcode || len(r.Answer) != records {
		l.t.Errorf("%s: %s with %d records, want %s with %d", ask, dns.RcodeToString[r.Rcode], len(r.Answer), dns.RcodeToString[rcode], records)
	}
	diff.Equal(l.t, upstream, l.upstreamAsked() > 0, ask, "the upstream was asked")
	if hit {
		diff.Equal(l.t, policy.NoLimit, limit, ask, "the limit of a reply of the packet cache")
		return
	}
	rec := l.lines.all[len(l.lines.all)-1]
	if rec.Name != policytest.Name(name) || rec.Limit != limit || limit != policy.NoLimit && rec.Verdict != audit.Refused {
		l.t.Errorf("%s: %s by %q in the log", ask, rec.Verdict, rec.Limit)
	}
	if opt := r.IsEdns0(); limit != policy.NoLimit && (opt == nil || len(opt.Option) != 1) {
		l.t.Errorf("%s: no extended error", ask)
	}
}

// TestWithheldTypes: a type that the policies withhold gets an empty answer, also where another
// pod's query put the answer into the cache.
func TestWithheldTypes(t *testing.T) {
	l := limitedLab(t)
	l.expect(quietPod, "a.wild.test TXT", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(quietPod, "a.wild.test TXT", dns.RcodeSuccess, 1, policy.NoLimit, false)
	l.expect(quietPod, "a.wild.test TXT", dns.RcodeSuccess, 1, policy.NoLimit, false) // from the packet cache
	for range 3 {
		l.expect(webPod, "a.wild.test TXT", dns.RcodeSuccess, 0, policy.LimitTypes, false)
		l.expect(webPod, "www.example.org TXT", dns.RcodeSuccess, 0, policy.LimitTypes, false)
		l.expect(webPod, "db.shop.svc.cluster.local TXT", dns.RcodeSuccess, 0, policy.LimitTypes, false)
		l.expect(typedPod, "n1.wild.test A", dns.RcodeSuccess, 0, policy.LimitTypes, false)
		l.expect(typedPod, "n1.wild.test HTTPS", dns.RcodeSuccess, 0, policy.LimitTypes, false)
	}
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	diff.Equal(t, 15, l.s.Stats().LimitedTypes, "counted")
	if got := l.kernel.until(labPods[2].PodRef, mustAddr("192.0.2.7")); !got.IsZero() {
		t.Error("a query without an answer opened an address")
	}
}

// TestTooManyLabels: no upstream gets a name with more labels below its zone, but for exact
// names and names of the cluster. Where the pod's resolver appended a suffix to an allowed name,
// the name does not exist, so that the resolver goes on to the allowed name.
func TestTooManyLabels(t *testing.T) {
	l := limitedLab(t)
	l.expect(webPod, "a.b.c.d.wild.test A", dns.RcodeRefused, 0, policy.LimitLabels, false)
	l.expect(webPod, "a.b.c.d.other.test A", dns.RcodeRefused, 0, policy.LimitLabels, false)
	l.expect(webPod, "a.b.c.d.svc.cluster.local A", dns.RcodeNameError, 0, policy.NoLimit, true)
	l.expect(webPod, "n2.b.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "a.b.wild.test.corp.test A", dns.RcodeNameError, 0, policy.NoLimit, false)
	diff.Equal(t, 2, l.s.Stats().LimitedLabels, "counted")
	if rec := l.lines.all[len(l.lines.all)-1]; rec.Verdict != audit.Refused {
		t.Error(rec.Verdict)
	}
}

// TestZoneRate: the queries for names of a zone that an upstream is asked for are limited by pod.
// Answers from the cache, exact names and names of the cluster do not count.
func TestZoneRate(t *testing.T) {
	l := limitedLab(t)
	l.expect(quietPod, "n9.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	for range 5 {
		l.expect(webPod, "n9.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, false) // kept
	}
	l.expect(webPod, "n2.b.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	for range 3 {
		l.expect(webPod, "n3.wild.test A", dns.RcodeRefused, 0, policy.LimitRate, false)
	}
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, false)
	l.expect(webPod, "n1.other.test A", dns.RcodeSuccess, 1, policy.NoLimit, true) // another zone
	l.expect(webPod, "www.example.org A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	for i := range 5 {
		l.expect(webPod, fmt.Sprintf("n%d.shop.svc.cluster.local A", i), dns.RcodeSuccess, 1, policy.NoLimit, true)
		l.expect(quietPod, fmt.Sprintf("n%d.b.wild.test A", 10+i), dns.RcodeSuccess, 1, policy.NoLimit, true) // another pod
	}
	l.pass(29 * time.Second)
	l.expect(webPod, "n3.wild.test A", dns.RcodeRefused, 0, policy.LimitRate, false)
	l.pass(2 * time.Second)
	l.expect(webPod, "n3.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "n4.wild.test A", dns.RcodeRefused, 0, policy.LimitRate, false)
	diff.Equal(t, 5, l.s.Stats().LimitedRate, "counted")
	if got := l.kernel.until(labPods[0].PodRef, mustAddr("192.0.2.7")); got.IsZero() {
		t.Error("what was answered is not open")
	}
	// A pod that is gone leaves nothing behind.
	l.s.Publish(compiled(t, limitedPolicies, nil))
	l.s.Publish(compiled(t, limitedPolicies, labPods))
	l.expect(webPod, "n5.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
}

// TestZoneRateOfStaleAnswers: an expired answer costs a query, which counts.
func TestZoneRateOfStaleAnswers(t *testing.T) {
	l := limitedLab(t, "cache {\nserve_stale 1h\n}")
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "n2.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.pass(61 * time.Second) // both tokens are back
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "n2.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.settle()
	l.pass(61 * time.Second)
	l.s.zones.Take(labPods[0].PodRef, policy.ZoneRate{Zone: policytest.Name("wild.test"), PerMinute: 2}, l.s.elapsed())
	l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.settle()
	l.expect(webPod, "n2.wild.test A", dns.RcodeRefused, 0, policy.LimitRate, false)
}

// TestZoneRateOfPrefetches: an answer that a pod over its rate asks for often is not renewed
// ahead of its end for it: renewals would tell the zone which names the pod asks for.
func TestZoneRateOfPrefetches(t *testing.T) {
	for _, over := range []bool{false, true} {
		l := limitedLab(t, prefetched)
		l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
		for range 5 {
			l.pass(9 * time.Second)
			l.expect(webPod, "n1.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, false)
		}
		rate := policy.ZoneRate{Zone: policytest.Name("wild.test"), PerMinute: 2}
		for over && l.s.zones.Take(labPods[0].PodRef, rate, l.s.elapsed()) {
		}
		for range 5 {
			l.pass(time.Second)
			l.any(webPod, newQuery("n1.wild.test", dns.TypeA))
			l.settle()
		}
		if n := l.s.stats.Prefetches.Load(); (n > 0) == over {
			t.Errorf("over the rate %t: %d renewals", over, n)
		}
		if rest := l.s.zones.Take(labPods[0].PodRef, rate, l.s.elapsed()); !over && !rest {
			t.Error("one renewal costs more than one query")
		}
	}
}

// TestHitsDuringARenewalCostNoRate: while an answer is renewed, queries that the cache answers take no
// token: the pod's next miss is answered.
func TestHitsDuringARenewalCostNoRate(t *testing.T) {
	l := limitedLab(t, prefetched)
	l.says("slow.wild.test A", "slow.wild.test. 60 IN A 192.0.2.7")
	l.expect(webPod, "slow.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	for range 5 {
		l.pass(9 * time.Second)
		l.expect(webPod, "slow.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, false)
	}
	h := l.holding()
	t.Cleanup(h.release)
	l.pass(5 * time.Second) // two tokens are there
	for range 20 {
		l.any(webPod, newQuery("slow.wild.test", dns.TypeA))
	}
	<-h.entered
	h.release()
	l.settle()
	diff.MustEqual(t, 1, l.s.stats.Prefetches.Load(), "renewals")
	l.expect(webPod, "n2.wild.test A", dns.RcodeSuccess, 1, policy.NoLimit, true)
	l.expect(webPod, "n3.wild.test A", dns.RcodeRefused, 0, policy.LimitRate, false)
}

// TestLimitedQueriesJoinNone: a query of a withheld type, with too many labels or over its rate
// does not get the answer to another pod's query in flight.
func TestLimitedQueriesJoinNone(t *testing.T) {
	for _, tt := range []struct {
		pod, name string
		rcode     int
	}{{webPod, "slow.wild.test", dns.RcodeRefused}, {typedPod, "slow.wild.test", dns.RcodeSuccess}, {webPod, "slow.a.b.c.wild.test", dns.RcodeRefused}} {
		l := limitedLab(t)
		l.says(tt.name+" A", tt.name+". 60 IN A 192.0.2.7")
		for range 2 {
			l.s.zones.Take(labPods[0].PodRef, policy.ZoneRate{Zone: policytest.Name("wild.test"), PerMinute: 2}, l.s.elapsed())
		}
		h := l.holding()
		t.Cleanup(h.release)
		packet, first := packed(t, newQuery(tt.name, dns.TypeA)), make(chan []byte)
		go func() { first <- l.decidedAgain(quietPod, packet, false) }()
		<-h.entered
		second := make(chan []byte)
		go func() { second <- l.decidedAgain(tt.pod, packet, true) }()
		select {
		case reply := <-second:
			if r := parsed(t, reply); r.Rcode != tt.rcode || len(r.Answer) > 0 {
				t.Errorf("%s: %v", tt.name, r)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: joined", tt.name)
			h.release()
			<-second
		}
		h.release()
		if r := parsed(t, <-first); len(r.Answer) != 1 {
			t.Errorf("%s: the other pod's answer is %v", tt.name, r)
		}
	}
}

// TestLimitsOfParkedQueries: a query that waits until its pod is known is limited as others are.
func TestLimitsOfParkedQueries(t *testing.T) {
	l, _ := newParkLab(t)
	l.s.Publish(compiled(t, limitedPolicies, without("strict")))
	l.up.table["a.b.c.d.wild.test TXT"] = []string{`a.b.c.d.wild.test. 60 IN TXT "x"`}
	l.up.table["n1.wild.test A"] = []string{"n1.wild.test. 60 IN A 192.0.2.7"}
	at := l.listen()
	for _, network := range []string{"udp", "tcp"} {
		for ask, rcode := range map[*dns.Msg]int{newQuery("a.b.c.d.wild.test", dns.TypeTXT): dns.RcodeRefused, newQuery("n1.wild.test", dns.TypeA): dns.RcodeSuccess} {
			l.s.Publish(compiled(t, limitedPolicies, without("strict")))
			c := client(t, network, "127.0.0.4", at)
			put(t, c, ask)
			l.awaitParked(1)
			l.s.Publish(compiled(t, limitedPolicies, labPods))
			if r := got(t, c); r.Rcode != rcode || len(r.Answer) > 0 {
				t.Errorf("%s: %v", network, r)
			}
		}
	}
	diff.Empty(t, l.up.asked, "questions to an upstream")
}

// TestWarmUpsOfWithheldTypes ask no upstream, and fail not.
func TestWarmUpsOfWithheldTypes(t *testing.T) {
	l := limitedLab(t)
	snap := compiled(t, strings.Replace(limitedPolicies, "types: [A, AAAA, MX]", "types: [AAAA]", 1), labPods)
	l.s.Publish(snap)
	l.says("www.example.org AAAA", "www.example.org. 60 IN AAAA 2001:db8::7")
	if err := l.s.Warm(t.Context(), snap.Views); err != nil {
		t.Error(err)
	}
	if l.up.wasAsked("www.example.org A") || !l.up.wasAsked("www.example.org AAAA") || l.s.Stats().LimitedTypes != 0 {
		t.Errorf("asked %v, %d counted", l.up.asked, l.s.Stats().LimitedTypes)
	}
}

// TestNamesOfEncryptedResolvers have no answer where the policies deny encrypted DNS, for every type.
func TestNamesOfEncryptedResolvers(t *testing.T) {
	l := limitedLab(t)
	for name, rcode := range map[string]int{"use-application-dns.net": dns.RcodeNameError, "_dns.resolver.arpa": dns.RcodeSuccess, "x._dns.resolver.arpa": dns.RcodeSuccess,
		"_dns.ns1.example.net": dns.RcodeSuccess, "_8530._dns.ns1.example.net": dns.RcodeSuccess} {
		for _, qtype := range []string{"A", "AAAA", "SVCB", "TXT"} {
			l.s.Publish(compiled(t, limitedPolicies, labPods))
			l.says(name+" "+qtype, map[string]string{"A": name + ". 60 IN A 192.0.2.7", "AAAA": name + ". 60 IN AAAA 2001:db8::7", "SVCB": name + ". 60 IN SVCB 1 dns.test. alpn=dot", "TXT": name + ". 60 IN TXT x"}[qtype])
			l.expect(quietPod, name+" "+qtype, dns.RcodeSuccess, 1, policy.NoLimit, true)
			l.s.Publish(compiled(t, strings.Replace(limitedPolicies, "{app: quiet}}\n", "{app: quiet}}\n  dns: {encrypted: Deny}\n", 1), labPods))
			l.expect(quietPod, name+" "+qtype, rcode, 0, policy.LimitEncrypted, false)
		}
	}
	l.expect(quietPod, "resolver.arpa A", dns.RcodeNameError, 0, policy.NoLimit, true)
	diff.Equal(t, 20, l.s.Stats().LimitedEncrypted, "counted")
}
