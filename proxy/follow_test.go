package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
)

// TestTargetsOfAllowedAnswersAreAllowed, for who asked, by the ports of the name that
// led there, and logged so.
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
			if got := r.Rcode == dns.RcodeSuccess && len(r.Answer) == 1; got != tt.led {
				t.Errorf("%s: led %v", tt.record, got)
			}
		}
		if got := !l.ledger.until(labPods[2].PodRef, a).IsZero(); got != tt.led {
			t.Errorf("%s: granted %v", tt.record, got)
		}
		if got := l.s.stats.Followed.Load(); (got == 3) != tt.led {
			t.Errorf("%s: %d questions were followed", tt.record, got)
		}
		// Nobody else profits.
		if r, _ := l.any("10.1.0.3", newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeNameError {
			t.Errorf("%s: another pod got %v", tt.record, r)
		}
	}
}

func TestFollowedIsLoggedWithTheNameThatLed(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	l.any("10.1.0.4", newQuery("host.test", dns.TypeA))
	rec := l.lines.all[0]
	if rec.Name != name(t, "host.test") || rec.Via != name(t, "www.example.org") || rec.Verdict != audit.Allowed || len(rec.Matches) != 1 {
		t.Errorf("logged %+v", rec)
	}
	if l.ledger.open[opening{labPods[2].PodRef, rec.Via, rec.Matches[0].Ports, mustAddr("192.0.2.1")}].IsZero() {
		t.Errorf("not granted by the name that led: %v", l.ledger.open)
	}
}

// TestFollowedEndsWithTheAnswer: and what was remembered ends with it.
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

// TestShortGreatestOfThePolicyIsAskedForAnew: where the policy's greatest TTL ends
// before the answer's, the question asked again leads again.
func TestShortGreatestOfThePolicyIsAskedForAnew(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test SRV": {"one.test. 900 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 900 IN A 192.0.2.1"}})
	for range 8 {
		r, _ := l.any("10.1.0.7", newQuery("one.test", dns.TypeSRV))
		if ttl := r.Answer[0].Header().Ttl; ttl != 100 {
			t.Fatalf("told %d s", ttl)
		}
		before := l.s.stats.Followed.Load()
		l.any("10.1.0.7", newQuery("host.test", dns.TypeA))
		l.pass(99 * time.Second)
		l.any("10.1.0.7", newQuery("host.test", dns.TypeA))
		if got := l.s.stats.Followed.Load() - before; got != 2 {
			t.Fatalf("%d of 2 questions were followed", got)
		}
		l.pass(2 * time.Second)
	}
}

// TestChainOfAliasesEndsWithTheFirst: names that point at each other keep nobody.
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
	if r, _ := l.any("10.1.0.4", newQuery("c.test", dns.TypeA)); r.Rcode != dns.RcodeRefused {
		t.Error("SRV of a followed name is followed")
	}
	for range 20 {
		l.pass(10 * time.Second)
		l.any("10.1.0.4", newQuery("a.test", dns.TypeHTTPS))
		l.any("10.1.0.4", newQuery("b.test", dns.TypeHTTPS))
	}
	for _, n := range []string{"a.test", "b.test"} {
		if r, _ := l.any("10.1.0.4", newQuery(n, dns.TypeHTTPS)); r.Rcode != dns.RcodeRefused {
			t.Errorf("%s is followed 200 s after an answer of 60 s", n)
		}
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
	if until := l.ledger.until(labPods[2].PodRef, mustAddr("10.96.0.1")); !until.IsZero() {
		t.Errorf("open until %v", until)
	}
}

// TestFollowEndsWithThePolicyAndTheSwitch, at once.
func TestFollowEndsWithThePolicyAndTheSwitch(t *testing.T) {
	table := map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}}
	without := `metadata: {name: strict, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress: [{matches: [{name: other.test}]}]
  dns: {unmatched: Refuse}
`
	for what, end := range map[string]func(*cacheLab){
		"policy": func(l *cacheLab) { l.s.Publish(compile(t, without, labPods)) },
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
		if r, _ := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeRefused {
			t.Errorf("%s: %v", what, r)
		}
	}
	l := newCacheLab(t, table, "cache\nfollow off")
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeSRV))
	l.reconfigure("cache\nfollow on")
	if r, _ := l.any("10.1.0.4", newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeRefused {
		t.Errorf("an answer of before counts: %v", r)
	}
}

// TestNewlyFollowedNameIsDecidedAnew: what was remembered of it before is not given.
func TestNewlyFollowedNameIsDecidedAnew(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	for range 3 {
		l.any("10.1.0.2", newQuery("host.test", dns.TypeA)) // unmatched, and resolves
	}
	if _, quick := l.any("10.1.0.2", newQuery("host.test", dns.TypeA)); !quick {
		t.Fatal("not remembered")
	}
	l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV))
	if _, quick := l.any("10.1.0.2", newQuery("host.test", dns.TypeA)); quick || l.ledger.until(labPods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("answered as before, and not open")
	}
}

// TestReplyDecidedBeforeANameWasFollowedIsNotKept, though it is finished after.
func TestReplyDecidedBeforeANameWasFollowedIsNotKept(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 60 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 60 IN A 192.0.2.1"}})
	l.any("10.1.0.6", newQuery("host.test", dns.TypeA))
	packet := packed(t, newQuery("host.test", dns.TypeA))
	who, setup := l.who("10.1.0.2"), l.s.setup.Load()
	query := parsed(t, packet)
	q, _ := readQuestion(query)
	late := &turn{s: l.s, setup: setup, view: who.view, snap: who.snap, query: query, q: q}
	r := late.run()
	l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV))
	l.s.remember(packet, pack(query, r, false), late.answer, who, setup, late)
	if wire := l.quickly("10.1.0.2", packet); wire != nil {
		t.Error("a reply of before is given, and its address is not open")
	}
}

// TestOnePodsNamesAreNoOthersBusiness: what one pod is led to makes nobody else go
// the long way.
func TestOnePodsNamesAreNoOthersBusiness(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"x.wild.test SRV": {"x.wild.test. 60 IN SRV 0 0 1 host.test."}, "www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 3 {
		l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
		l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
	}
	l.any("10.1.0.2", newQuery("x.wild.test", dns.TypeSRV))
	if _, quick := l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA)); !quick {
		t.Error("another pod's reply is decided anew")
	}
}

// TestSecondNameThatLeadsIsHeardInTheEnd: what it points at is led to by another for
// now, and its own answer holds for longer.
func TestSecondNameThatLeadsIsHeardInTheEnd(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org SRV": {"www.example.org. 40 IN SRV 0 0 1 host.test."},
		"a.wild.test SRV": {"a.wild.test. 300 IN SRV 0 0 1 host.test."}, "host.test A": {"host.test. 300 IN A 192.0.2.1"}})
	l.any("10.1.0.2", newQuery("www.example.org", dns.TypeSRV))
	for range 4 {
		l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeSRV))
	}
	l.pass(45 * time.Second)
	l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeSRV))
	l.any("10.1.0.2", newQuery("host.test", dns.TypeA))
	if l.s.stats.Followed.Load() != 1 || l.ledger.until(labPods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("its target is not followed")
	}
}

func TestFollowsAreBoundedAPod(t *testing.T) {
	var f follows
	pod, other := policy.PodRef{Name: "a"}, policy.PodRef{Name: "b"}
	via := name(t, "www.example.org")
	for i := range followsMost {
		if !f.add(pod, name(t, itoa(i)+".test"), via, 0, time.Minute+time.Duration(i)) {
			t.Fatalf("%d is too many", i)
		}
	}
	late := name(t, "late.test")
	if f.add(pod, late, via, 0, time.Hour) || len(f.pods[pod].names) != followsMost {
		t.Error("one more than the bound")
	}
	if !f.add(pod, name(t, "7.test"), via, 0, time.Hour) || !f.add(other, late, via, 0, time.Hour) {
		t.Error("a known name is not prolonged, or another pod has no room")
	}
	if !f.add(pod, late, via, time.Minute+9, time.Hour) || len(f.pods[pod].names) != followsMost-8 {
		t.Errorf("those that are over do not make room: %d", len(f.pods[pod].names))
	}
}

// TestFirstNameThatLeadsCounts until its answer is over; who is not heard is not
// told that it is settled.
func TestFirstNameThatLeadsCounts(t *testing.T) {
	var f follows
	pod := policy.PodRef{Name: "a"}
	n, one, two := name(t, "host.test"), name(t, "one.test"), name(t, "two.test")
	steps := []struct {
		via        policy.Name
		now, until time.Duration
		settled    bool
		led        policy.Name
		epoch      uint64
	}{
		{one, 0, 10, true, one, 1},
		{two, 5, 8, true, one, 1},
		{two, 5, 20, false, one, 1},
		{one, 6, 12, true, one, 1},
		{two, 12, 20, true, two, 2},
		{one, 13, 14, true, two, 2},
	}
	for i, s := range steps {
		if got := f.add(pod, n, s.via, s.now, s.until); got != s.settled {
			t.Errorf("%d: settled %v", i, got)
		}
		if via, ok := f.via(pod, n, s.now); !ok || via != s.led || f.of(pod).epoch.Load() != s.epoch {
			t.Errorf("%d: led by %v, epoch %d", i, via, f.of(pod).epoch.Load())
		}
	}
	if _, ok := f.via(pod, n, 20); ok {
		t.Error("it does not end")
	}
	if _, ok := f.via(policy.PodRef{Name: "b"}, n, 13); ok {
		t.Error("another pod is led")
	}
}

// TestSweepForgetsWhatIsNotAllowedAnyMore: so another name may lead there.
func TestSweepForgetsWhatIsNotAllowedAnyMore(t *testing.T) {
	l := newCacheLab(t, map[string][]string{})
	web, gone := labPods[0].PodRef, policy.PodRef{Name: "gone"}
	l.s.follows.add(web, name(t, "a.test"), name(t, "www.example.org"), 0, time.Hour)
	l.s.follows.add(web, name(t, "b.test"), name(t, "elsewhere.test"), 0, time.Hour)
	l.s.follows.add(gone, name(t, "a.test"), name(t, "www.example.org"), 0, time.Hour)
	l.s.Publish(compile(t, labPolicies, labPods))
	if names := l.s.follows.pods[web].names; len(names) != 1 || names[name(t, "a.test")].until == 0 {
		t.Errorf("led to %v", names)
	}
	if l.s.follows.pods[gone] != nil {
		t.Error("a pod that is no more is led")
	}
}

// TestPointersAreOfTheQuestion: records of other owners point nowhere.
func TestPointersAreOfTheQuestion(t *testing.T) {
	q := Question{Name: name(t, "one.test"), Type: dns.TypeSRV, Class: dns.ClassINET}
	for _, tt := range []struct {
		says []string
		want []string
		ttl  uint32
	}{
		{[]string{"other.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"+one.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 CH SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 IN MX 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 IN SRV 0 0 1 one.test."}, nil, 0},
		{[]string{"one.test. 20 IN CNAME two.test.", "two.test. 60 IN SRV 0 0 1 host.test."}, []string{"host.test"}, 20},
		{[]string{"one.test. 60 IN CNAME two.test.", "two.test. 60 IN CNAME one.test.", "one.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"NXDOMAIN", "other.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
	} {
		var got []string
		for _, p := range pointers(q, answerOf(t, dns.TypeSRV, tt.says...), false) {
			if got = append(got, p.name.String()); p.ttl != tt.ttl {
				t.Errorf("%q: for %d s", tt.says, p.ttl)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q points at %v", tt.says, got)
		}
	}
}
