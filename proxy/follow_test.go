package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestTargetsOfAllowedAnswersAreAllowed: for the pod that asked, by the ports of the
// allowed name, and logged so.
func TestTargetsOfAllowedAnswersAreAllowed(t *testing.T) {
	for _, tt := range []struct {
		qtype  uint16
		record string
		led    bool
	}{
		{dns.TypeSRV, "SRV 0 0 443 Host.test.", true},
		{dns.TypeMX, "MX 10 host.test.", true},
		{dns.TypeHTTPS, "HTTPS 0 host.test.", true},
		{dns.TypeHTTPS, "HTTPS 1 host.test. alpn=h2", true},
		{dns.TypeSVCB, "SVCB 1 host.test. alpn=h2", true},
		{dns.TypeSRV, "SRV 0 0 443 .", false},
		{dns.TypeMX, "MX 0 .", false},
		{dns.TypeCNAME, "CNAME host.test.", false},
		{dns.TypeNS, "NS host.test.", false},
		{dns.TypeDNAME, "DNAME host.test.", false},
		{dns.TypeANY, "SRV 0 0 443 host.test.", false},
	} {
		l := newCacheLab(t, map[string][]string{"www.example.org " + dns.TypeToString[tt.qtype]: {"www.example.org. 60 IN " + tt.record},
			"host.test A": {"host.test. 60 IN A 192.0.2.1"}, "host.test AAAA": {"host.test. 60 IN AAAA 2001:db8::1"}})
		a := mustAddr("192.0.2.1")
		if r, _ := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeRefused {
			t.Fatalf("before: %v", r)
		}
		l.any("10.1.0.4", newQuery("www.example.org", tt.qtype))
		for range 3 {
			r, _ := l.any("10.1.0.4", newQuery("host.test", dns.TypeA))
			diff.Equal(t, tt.led, r.Rcode == dns.RcodeSuccess && len(r.Answer) == 1, tt.record, "led")
		}
		diff.Equal(t, tt.led, !l.kernel.until(labPods[2].PodRef, a).IsZero(), tt.record, "granted")
		if got := l.s.stats.Followed.Load(); (got == 3) != tt.led {
			t.Errorf("%s: %d questions were followed", tt.record, got)
		}
		// No other pod may follow the name.
		wantCode(t, dns.RcodeNameError, l.reply("10.1.0.3", newQuery("host.test", dns.TypeA)), tt.record, "another pod")
	}
}

func TestFollowedNameIsLoggedWithTheAllowedName(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	l.any("10.1.0.4", newQuery("host.test", dns.TypeA))
	rec := l.lines.all[0]
	if rec.Name != policytest.Name("host.test") || rec.Via != policytest.Name("www.example.org") || rec.Verdict != audit.Allowed || len(rec.Matches) != 1 {
		t.Errorf("logged %+v", rec)
	}
	if l.kernel.open[opening{labPods[2].PodRef, rec.Via, rec.Matches[0].Ports, "", mustAddr("192.0.2.1")}].IsZero() {
		t.Errorf("not granted by the name that led: %v", l.kernel.open)
	}
}

// TestFollowedEndsWithTheAnswer: and so do its cached replies.
func TestFollowedEndsWithTheAnswer(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test SRV": {"one.test. 40 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 95 IN A 192.0.2.1"}})
	l.any("10.1.0.7", newQuery("one.test", dns.TypeSRV))
	for at := time.Duration(0); at < 45*time.Second; at += 500 * time.Millisecond {
		l.at.Store(int64(at))
		before := l.s.stats.Followed.Load()
		for range 3 {
			l.any("10.1.0.7", newQuery("host.test", dns.TypeA))
		}
		if got := l.s.stats.Followed.Load() - before; at < 40*time.Second && got != 3 || at >= 40*time.Second && got != 0 {
			t.Fatalf("at %v %d of 3 questions were followed", at, got)
		}
	}
}

// TestShortMaximumOfThePolicyEndsTheReply: where the policy's greatest TTL ends
// before the answer's, the question asked again leads again.
func TestShortMaximumOfThePolicyEndsTheReply(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test SRV": {"one.test. 900 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 900 IN A 192.0.2.1"}})
	for range 8 {
		r, _ := l.any("10.1.0.7", newQuery("one.test", dns.TypeSRV))
		diff.MustEqual(t, 100, r.Answer[0].Header().Ttl, "the TTL told")
		before := l.s.stats.Followed.Load()
		l.any("10.1.0.7", newQuery("host.test", dns.TypeA))
		l.pass(99 * time.Second)
		l.any("10.1.0.7", newQuery("host.test", dns.TypeA))
		diff.MustEqual(t, 2, l.s.stats.Followed.Load()-before, "questions followed")
		l.pass(2 * time.Second)
	}
}

// TestChainOfAliasesEndsWithTheFirst: names that point at each other are not followed for
// longer.
func TestChainOfAliasesEndsWithTheFirst(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org HTTPS": {"www.example.org. 60 IN HTTPS 0 a.test."},
		"a.test HTTPS": {"a.test. 60 IN HTTPS 0 b.test."}, "b.test HTTPS": {"b.test. 60 IN HTTPS 0 a.test."}, "b.test SRV": {"b.test. 60 IN SRV 0 0 1 c.test."}})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeHTTPS))
	l.any("10.1.0.4", newQuery("a.test", dns.TypeHTTPS))
	l.pass(30 * time.Second)
	if r, _ := l.any("10.1.0.4", newQuery("b.test", dns.TypeHTTPS)); r.Rcode != dns.RcodeSuccess {
		t.Fatal("a chain of aliases is not followed")
	}
	l.any("10.1.0.4", newQuery("b.test", dns.TypeSRV))
	wantCode(t, dns.RcodeRefused, l.reply("10.1.0.4", newQuery("c.test", dns.TypeA)), "SRV of a followed name")
	for range 20 {
		l.pass(10 * time.Second)
		l.any("10.1.0.4", newQuery("a.test", dns.TypeHTTPS))
		l.any("10.1.0.4", newQuery("b.test", dns.TypeHTTPS))
	}
	for _, n := range []string{"a.test", "b.test"} {
		wantCode(t, dns.RcodeRefused, l.reply("10.1.0.4", newQuery(n, dns.TypeHTTPS)), n, "200 s after an answer of 60 s")
	}
}

// TestOutsideNameOpensNothingOfTheCluster: neither by an address nor by a name, and
// the cluster's own names go on resolving.
func TestOutsideNameOpensNothingOfTheCluster(t *testing.T) {
	l := newCacheLab(t, map[string][]string{
		"www.example.org SRV":              {"www.example.org. 60 IN SRV 0 0 1 kube.default.svc.cluster.local.", "www.example.org. 60 IN SRV 0 0 1 inner.test."},
		"kube.default.svc.cluster.local A": {"kube.default.svc.cluster.local. 60 IN A 10.96.0.1"},
		"inner.test A":                     {"inner.test. 60 IN A 10.96.0.1", "inner.test. 60 IN A 192.0.2.1"},
	})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	for range 3 {
		l.gives("10.1.0.4", "kube.default.svc.cluster.local", dns.TypeA, "kube.default.svc.cluster.local. 60 A 10.96.0.1")
		l.gives("10.1.0.4", "inner.test", dns.TypeA, "inner.test. 60 A 192.0.2.1")
	}
	if until := l.kernel.until(labPods[2].PodRef, mustAddr("10.96.0.1")); !until.IsZero() {
		t.Errorf("open until %v", until)
	}
}

// strictWithout is the policy of the strict pod without the name that leads.
const strictWithout = `metadata: {name: strict, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress: [{matches: [{name: other.test}]}]
  dns: {unmatched: Refuse}
`

// TestFollowEndsWithThePolicyAndTheSwitch, at once.
func TestFollowEndsWithThePolicyAndTheSwitch(t *testing.T) {
	table := map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}}
	for what, end := range map[string]func(*cacheLab){
		"policy": func(l *cacheLab) { l.s.Publish(compiled(t, strictWithout, labPods)) },
		"switch": func(l *cacheLab) { l.reconfigure("cache\nfollow off") },
	} {
		l := newCacheLab(t, table)
		l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
		for range 3 {
			if r, _ := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeSuccess {
				t.Fatalf("%v", r)
			}
		}
		end(l)
		wantCode(t, dns.RcodeRefused, l.reply("10.1.0.4", newQuery("host.test", dns.TypeA)), what)
	}
	l := newCacheLab(t, table, "cache\nfollow off")
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	l.reconfigure("cache\nfollow on")
	wantCode(t, dns.RcodeRefused, l.reply("10.1.0.4", newQuery("host.test", dns.TypeA)), "after an answer of before")
}

// TestNewlyFollowedNameIsDecidedAgain: an earlier cached reply is not used.
func TestNewlyFollowedNameIsDecidedAgain(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	for range 3 {
		l.any("10.1.0.2", newQuery("host.test", dns.TypeA)) // unmatched, and resolves
	}
	if _, hit := l.any("10.1.0.2", newQuery("host.test", dns.TypeA)); !hit {
		t.Fatal("not remembered")
	}
	l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV))
	if _, hit := l.any("10.1.0.2", newQuery("host.test", dns.TypeA)); hit || l.kernel.until(labPods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("answered as before, and not open")
	}
}

// TestSecondAllowedNameIsFollowedLater: the name is followed from another name for now,
// and the second name's answer is valid for longer.
func TestSecondAllowedNameIsFollowedLater(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 40 IN SRV 0 0 1 host.test."},
		"a.wild.test SRV": {"a.wild.test. 300 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 300 IN A 192.0.2.1"}})
	l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV))
	for range 4 {
		l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeSRV))
	}
	l.pass(45 * time.Second)
	l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeSRV))
	l.any("10.1.0.2", newQuery("host.test", dns.TypeA))
	if l.s.stats.Followed.Load() != 1 || l.kernel.until(labPods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("its target is not followed")
	}
}
