package proxy

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/follow"
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

// TestReplyDecidedBeforeANameWasFollowedIsNotCached, though it is finished after.
func TestReplyDecidedBeforeANameWasFollowedIsNotCached(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.6", newQuery("host.test", dns.TypeA))
	packet := packed(t, newQuery("host.test", dns.TypeA))
	var once sync.Once
	l.s.faultAt = func(step string) {
		if step == "store" {
			once.Do(func() { l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV)) })
		}
	}
	l.decidedAgain("10.1.0.2", packet, false)
	once.Do(func() { t.Error("the reply was not to be kept") })
	if wire := l.fromPacketCache("10.1.0.2", packet); wire != nil {
		t.Error("a reply of before is given, and its address is not open")
	}
}

// TestFollowedNamesOfAPodAffectNoOtherPod: they do not invalidate another pod's cached
// replies.
func TestFollowedNamesOfAPodAffectNoOtherPod(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"x.wild.test SRV": {"x.wild.test. 60 IN SRV 0 0 1 host.test."}, "www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 3 {
		l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
		l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
	}
	l.any("10.1.0.2", newQuery("x.wild.test", dns.TypeSRV))
	if _, hit := l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA)); !hit {
		t.Error("another pod's reply is decided anew")
	}
}

// leadBy is a lead by a name, of rules that accept; "!name" is of rules that deny, "^name" by an
// alias.
func leadBy(name string, until time.Duration) follow.Lead {
	l := policy.Lead{Alias: name[0] == '^', Lasting: name[0] == '!' || name[0] == '^'}
	l.Name = policytest.Name(strings.TrimLeft(name, "!^"))
	return follow.Lead{Lead: l, Until: until}
}

// TestSweepRemovesNamesThatAreNoLongerCovered: of the leads of each name.
func TestSweepRemovesNamesThatAreNoLongerCovered(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, gone := labPods[0].PodRef, policy.PodRef{Name: "gone"}
	for _, n := range []string{"a.test", "b.test"} {
		l.s.followed.Add(web, policytest.Name(n), leadBy("!elsewhere.test", time.Hour), 0)
		l.s.followed.Add(web, policytest.Name(n), leadBy("^www.example.org", time.Hour), 0)
		l.s.followed.Add(gone, policytest.Name(n), leadBy("www.example.org", time.Hour), 0)
	}
	l.s.followed.Add(web, policytest.Name("a.test"), leadBy("!www.example.org", time.Hour), 0)
	epoch := l.s.followed.Epoch(web).Load()
	l.s.Publish(compiled(t, labPolicies, labPods))
	left, none := l.s.followed.Find(web, policytest.Name("a.test")), l.s.followed.Find(web, policytest.Name("b.test"))
	if len(none) != 0 || len(left) != 1 || left[0].Name != policytest.Name("www.example.org") || left[0].Lasting {
		t.Errorf("led to a.test by %v, to b.test by %v", left, none)
	}
	if l.s.followed.Find(gone, policytest.Name("a.test")) != nil || l.s.followed.Epoch(web).Load() == epoch {
		t.Error("a pod that is no more is led, or replies of before stay")
	}
}

// TestSweepLooksAtChangedViewsAlone: the leads of all pods of a node take long, and queries wait.
func TestSweepLooksAtChangedViewsAlone(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, n := labPods[0].PodRef, policytest.Name("a.test")
	l.s.followed.Add(web, n, leadBy("www.example.org", time.Hour), 0)
	snap := compiled(t, labPolicies, labPods)
	l.s.Publish(snap)
	l.s.followed.Find(web, n)[0].Lasting = true
	l.s.Publish(snap)
	if !l.s.followed.Find(web, n)[0].Lasting {
		t.Error("a lead is looked at although the view is the same")
	}
	l.s.Publish(compiled(t, labPolicies, labPods))
	if l.s.followed.Find(web, n)[0].Lasting {
		t.Error("a lead is not looked at although the view is another")
	}
}

// TestRestoredSnapshotHasNoFollowedNames: its cached replies from followed names that its
// successor ended are not used.
func TestRestoredSnapshotHasNoFollowedNames(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	for range 3 {
		l.any("10.1.0.4", newQuery("host.test", dns.TypeA))
	}
	old := l.s.snapshot.Load()
	l.s.Publish(compiled(t, strictWithout, labPods))
	l.s.Publish(old)
	if r, hit := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); hit || r.Rcode != dns.RcodeRefused {
		t.Errorf("quick %v, %v", hit, r)
	}
}
