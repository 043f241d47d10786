package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// labTable has the upstream's answers in the pipeline's table test.
var labTable = map[string][]string{
	"www.example.org A":    {"www.example.org. 300 IN CNAME edge.cdn.test.", "edge.cdn.test. 120 IN A 192.0.2.1", "edge.cdn.test. 120 IN A 192.0.2.2"},
	"www.example.org AAAA": {"www.example.org. 60 IN AAAA 2001:db8:9::1"},
	"www.example.org MX":   {"www.example.org. 60 IN MX 10 mx.example.org.", "+mx.example.org. 60 IN A 192.0.2.9"},
	"other.test A":         {"other.test. 300 IN A 192.0.2.66"},
	"metadata.wild.test A": {"metadata.wild.test. 5 IN A 169.254.169.254"},
	"half.wild.test A":     {"half.wild.test. 5 IN A 10.96.0.1", "half.wild.test. 5 IN A 192.0.2.3"},
	"node.wild.test A":     {"node.wild.test. 5 IN A 192.0.2.250"},
	"lb.wild.test A":       {"lb.wild.test. 5 IN A 203.0.113.250"},
	"empty.wild.test A":    {},
	"sick.wild.test A":     {"SERVFAIL"},
	"mute.wild.test A":     {"error"},
	"long.wild.test A":     {"long.wild.test. 86400 IN A 192.0.2.4"},
	"zero.wild.test A":     {"zero.wild.test. 0 IN A 192.0.2.5"},
	"huge.wild.test A":     {"huge.wild.test. 4294967295 IN A 192.0.2.6"},
	"app.ingress.test A":   {"app.ingress.test. 60 IN A 10.96.7.1"},
	"one.test A":           {"one.test. 3600 IN A 192.0.2.10"},
	"two.test A":           {"two.test. 60 IN A 192.0.2.20"},

	"db.shop.svc.cluster.local A":  {"db.shop.svc.cluster.local. 30 IN A 10.96.0.9"},
	"etc.shop.svc.cluster.local A": {"etc.shop.svc.cluster.local. 30 IN A 10.96.0.8"},

	"www.example.org.shop.svc.cluster.local A": {"www.example.org.shop.svc.cluster.local. 30 IN CNAME www.example.org.", "www.example.org. 5 IN A 6.6.6.6"},
	"www.example.org.corp.test A":              {"www.example.org.corp.test. 600 IN CNAME www.example.org.", "www.example.org. 5 IN A 6.6.6.6"},
	"other.test.corp.test A":                   {"other.test.corp.test. 30 IN CNAME www.example.org.", "www.example.org. 5 IN A 6.6.6.6"},
	"www.example.org.svc.cluster.local A":      {"REFUSED"},
}

func TestQuery(t *testing.T) {
	for _, tt := range []struct {
		name, pod, q string
		qtype        uint16
		rcode        int
		verdict      audit.Verdict
		would        audit.Verdict
		answer       []string
		grants       []string
		notAsked     bool
	}{
		{name: "allowed", pod: "10.1.0.2", q: "www.example.org", verdict: audit.Allowed,
			answer: []string{"www.example.org. 300 CNAME edge.cdn.test.", "edge.cdn.test. 120 A 192.0.2.1", "edge.cdn.test. 120 A 192.0.2.2"},
			grants: []string{"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +3m0s"}},
		{name: "IPv6, asked over IPv6", pod: "2001:db8:1::2", q: "www.example.org", qtype: dns.TypeAAAA, verdict: audit.Allowed,
			answer: []string{"www.example.org. 60 AAAA 2001:db8:9::1"},
			grants: []string{"web www.example.org [2001:db8:9::1] tcp/443 +2m0s"}},
		{name: "every port", pod: "10.1.0.3", q: "www.example.org", qtype: dns.TypeAAAA, verdict: audit.Allowed,
			answer: []string{"www.example.org. 60 AAAA 2001:db8:9::1"},
			grants: []string{"quiet www.example.org [2001:db8:9::1] any +2m0s"}},
		{name: "no address in it", pod: "10.1.0.2", q: "www.example.org", qtype: dns.TypeMX, verdict: audit.Allowed,
			answer: []string{"www.example.org. 60 MX 10 mx.example.org."}},
		{name: "a name without addresses", pod: "10.1.0.2", q: "empty.wild.test", verdict: audit.Allowed},
		{name: "a name that is not there", pod: "10.1.0.2", q: "gone.wild.test", verdict: audit.Allowed, rcode: dns.RcodeNameError},
		{name: "unmatched is resolved", pod: "10.1.0.2", q: "other.test", verdict: audit.Unmatched,
			answer: []string{"other.test. 300 A 192.0.2.66"}},
		{name: "unmatched is not there", pod: "10.1.0.3", q: "other.test", verdict: audit.Refused, rcode: dns.RcodeNameError, notAsked: true},
		{name: "unmatched is refused", pod: "10.1.0.4", q: "other.test", verdict: audit.Refused, rcode: dns.RcodeRefused, notAsked: true},
		{name: "in the cluster and not allowed", pod: "10.1.0.4", q: "etc.shop.svc.cluster.local", verdict: audit.Unmatched,
			answer: []string{"etc.shop.svc.cluster.local. 30 A 10.96.0.8"}},
		{name: "in the cluster and allowed", pod: "10.1.0.2", q: "db.shop.svc.cluster.local", verdict: audit.Allowed,
			answer: []string{"db.shop.svc.cluster.local. 30 A 10.96.0.9"},
			grants: []string{"web db.shop.svc.cluster.local [10.96.0.9] tcp/443 +1m30s"}},
		{name: "metadata", pod: "10.1.0.2", q: "metadata.wild.test", verdict: audit.Blocked},
		{name: "a node", pod: "10.1.0.2", q: "node.wild.test", verdict: audit.Blocked},
		{name: "a load balancer", pod: "10.1.0.2", q: "lb.wild.test", verdict: audit.Blocked},
		{name: "one of two is the cluster's", pod: "10.1.0.2", q: "half.wild.test", verdict: audit.Allowed,
			answer: []string{"half.wild.test. 5 A 192.0.2.3"},
			grants: []string{"web half.wild.test [192.0.2.3] tcp/443 +1m30s"}},
		{name: "rebind allow", pod: "10.1.0.2", q: "app.ingress.test", verdict: audit.Allowed,
			answer: []string{"app.ingress.test. 60 A 10.96.7.1"},
			grants: []string{"web app.ingress.test [10.96.7.1] tcp/443 +2m0s"}},
		{name: "the upstream says SERVFAIL", pod: "10.1.0.2", q: "sick.wild.test", verdict: audit.Failed, rcode: dns.RcodeServerFailure},
		{name: "the upstream says nothing", pod: "10.1.0.2", q: "mute.wild.test", verdict: audit.Failed, rcode: dns.RcodeServerFailure},
		{name: "TTL above the most", pod: "10.1.0.2", q: "long.wild.test", verdict: audit.Allowed,
			answer: []string{"long.wild.test. 3600 A 192.0.2.4"},
			grants: []string{"web long.wild.test [192.0.2.4] tcp/443 +1h1m0s"}},
		{name: "TTL 0", pod: "10.1.0.2", q: "zero.wild.test", verdict: audit.Allowed,
			answer: []string{"zero.wild.test. 0 A 192.0.2.5"},
			grants: []string{"web zero.wild.test [192.0.2.5] tcp/443 +1m30s"}},
		{name: "TTL with the top bit", pod: "10.1.0.2", q: "huge.wild.test", verdict: audit.Allowed,
			answer: []string{"huge.wild.test. 0 A 192.0.2.6"},
			grants: []string{"web huge.wild.test [192.0.2.6] tcp/443 +1m30s"}},
		{name: "two port sets", pod: "10.1.0.7", q: "one.test", verdict: audit.Allowed,
			answer: []string{"one.test. 100 A 192.0.2.10"},
			grants: []string{"both one.test [192.0.2.10] tcp/80 +1m45s", "both one.test [192.0.2.10] udp/53 +1m45s"}},
		{name: "audit beside enforced, allowed by audit alone", pod: "10.1.0.7", q: "two.test", verdict: audit.Unmatched, would: audit.Allowed,
			answer: []string{"two.test. 60 A 192.0.2.20"}},
		{name: "audit alone, matched", pod: "10.1.0.5", q: "www.example.org", qtype: dns.TypeAAAA, verdict: audit.Unmatched, would: audit.Allowed,
			answer: []string{"www.example.org. 60 AAAA 2001:db8:9::1"}},
		{name: "audit alone, unmatched", pod: "10.1.0.5", q: "other.test", verdict: audit.Unmatched, would: audit.Unmatched,
			answer: []string{"other.test. 300 A 192.0.2.66"}},
		{name: "completed by the upstream in the cluster", pod: "10.1.0.4", q: "www.example.org.shop.svc.cluster.local", verdict: audit.Allowed,
			answer: []string{"www.example.org.shop.svc.cluster.local. 30 CNAME www.example.org.", "www.example.org. 300 CNAME edge.cdn.test.", "edge.cdn.test. 120 A 192.0.2.1", "edge.cdn.test. 120 A 192.0.2.2"},
			grants: []string{"strict www.example.org [192.0.2.1 192.0.2.2] any +3m0s"}},
		{name: "completed by the upstream, configured suffix", pod: "10.1.0.2", q: "www.example.org.corp.test", verdict: audit.Allowed,
			answer: []string{"www.example.org.corp.test. 120 CNAME www.example.org.", "www.example.org. 300 CNAME edge.cdn.test.", "edge.cdn.test. 120 A 192.0.2.1", "edge.cdn.test. 120 A 192.0.2.2"},
			grants: []string{"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +3m0s"}},
		{name: "a CNAME to an allowed name proves nothing", pod: "10.1.0.2", q: "other.test.corp.test", verdict: audit.Unmatched,
			answer: []string{"other.test.corp.test. 30 CNAME www.example.org.", "www.example.org. 5 A 6.6.6.6"}},
		{name: "allowed plus suffix under Refuse", pod: "10.1.0.4", q: "www.example.org.corp.test", verdict: audit.Refused, rcode: dns.RcodeNameError, notAsked: true},
		{name: "allowed plus suffix under NXDomain", pod: "10.1.0.3", q: "www.example.org.corp.test", verdict: audit.Refused, rcode: dns.RcodeNameError, notAsked: true},
		{name: "allowed plus cluster suffix, REFUSED upstream", pod: "10.1.0.4", q: "www.example.org.svc.cluster.local", verdict: audit.Refused, rcode: dns.RcodeNameError},
		{name: "allowed plus cluster suffix, not there", pod: "10.1.0.4", q: "www.example.org.cluster.local", verdict: audit.Unmatched, rcode: dns.RcodeNameError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, labTable)
			if tt.qtype == 0 {
				tt.qtype = dns.TypeA
			}
			r := l.ask(tt.pod, tt.q, tt.qtype)
			if r.Rcode != tt.rcode {
				t.Errorf("rcode %s, want %s", dns.RcodeToString[r.Rcode], dns.RcodeToString[tt.rcode])
			}
			equal(t, "answer", data(r.Answer), tt.answer)
			equal(t, "grants", l.granted(), tt.grants)
			rec := l.log.last(t)
			if rec.Verdict != tt.verdict || rec.Would != tt.would {
				t.Errorf("verdict %v would %v, want %v would %v (%s)", rec.Verdict, rec.Would, tt.verdict, tt.would, rec.Error)
			}
			if asked := len(l.up.asked) > 0; asked == tt.notAsked {
				t.Errorf("asked upstream: %v", asked)
			}
			if tt.verdict == audit.Failed && rec.Error == "" {
				t.Error("a failed verdict without a reason")
			}
		})
	}
}

func TestAdditionalAddressesAreTakenOut(t *testing.T) {
	l := newLab(t, labTable)
	r := l.ask("10.1.0.2", "www.example.org", dns.TypeMX)
	equal(t, "additional", data(r.Extra), nil)
	r = l.ask("10.1.0.6", "www.example.org", dns.TypeMX)
	equal(t, "additional of a pod that nothing selects", data(r.Extra), []string{"mx.example.org. 60 A 192.0.2.9"})
}

func TestUnselectedPodIsOnlyAnswered(t *testing.T) {
	l := newLab(t, labTable)
	r := l.ask("10.1.0.6", "www.example.org", dns.TypeAAAA)
	equal(t, "answer", data(r.Answer), []string{"www.example.org. 60 AAAA 2001:db8:9::1"})
	if len(l.granter.Grants()) != 0 || len(l.log.recs) != 0 {
		t.Errorf("granted %v, logged %v", l.granter.Grants(), l.log.recs)
	}
	if r = l.ask("10.1.0.6", "mute.wild.test", dns.TypeA); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("rcode %d", r.Rcode)
	}
}

func TestNodeIsAnsweredUngranted(t *testing.T) {
	for _, from := range []string{"127.0.0.1", "169.254.20.53", "192.0.2.250", "::1"} {
		l := newLab(t, labTable)
		r := l.ask(from, "www.example.org", dns.TypeA)
		if len(r.Answer) != 3 || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: answer %v, grants %v", from, r.Answer, l.granter.Grants())
		}
	}
}

func TestRecordOfAnAllowedAnswer(t *testing.T) {
	l := newLab(t, labTable)
	l.ask("10.1.0.2", "half.wild.test", dns.TypeA)
	rec := l.log.last(t)
	if rec.Pod.Name != "web" || rec.Address != netip.MustParseAddr("10.1.0.2") || rec.Name.String() != "half.wild.test" || rec.Time != noon {
		t.Errorf("record %+v", rec)
	}
	if len(rec.Matches) != 1 || rec.Matches[0].By() != "shop/web *.wild.test" {
		t.Errorf("matches %v", rec.Matches)
	}
	if len(rec.Answers) != 2 || rec.Answers[0].Blocked == "" || rec.Answers[1].Blocked != "" {
		t.Fatalf("answers %+v", rec.Answers)
	}
	if o := rec.Answers[1].Openings; len(o) != 1 || o[0].Ports != "tcp/443" || o[0].Until.Sub(noon).Seconds() != 90 {
		t.Errorf("openings %+v", o)
	}
	diff.Equal(t, "198.51.100.53:53", rec.Upstream.String(), "upstream", rec.Upstream)
}

func TestWouldBeBlocked(t *testing.T) {
	table := map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 10.96.0.1"}}
	l := newLab(t, table)
	r := l.ask("10.1.0.5", "www.example.org", dns.TypeA)
	if len(r.Answer) != 1 || l.log.last(t).Would != audit.Blocked {
		t.Errorf("answer %v, record %+v", r.Answer, l.log.last(t))
	}
}

func TestManyAddressesAreBounded(t *testing.T) {
	var rrs []string
	for i := range 164 {
		rrs = append(rrs, "big.wild.test. 60 IN A 198.18.0."+itoa(i))
	}
	l := newLab(t, map[string][]string{"big.wild.test A": rrs})
	m := newQuery("big.wild.test", dns.TypeA)
	m.SetEdns0(4096, false)
	r := l.send("10.1.0.2", m)
	g := l.granter.Grants()
	if len(r.Answer) != 128 || len(g) != 1 || len(g[0].Addrs) != 128 {
		t.Errorf("%d records, %d grants", len(r.Answer), len(g))
	}
	diff.Equal(t, 36, l.s.Stats().AddressesOver, "over")
}

// TestHTTPSThroughThePipeline: a hint inside the cluster is taken out, the other granted.
func TestHTTPSThroughThePipeline(t *testing.T) {
	l := newLab(t, map[string][]string{
		"www.example.org HTTPS": {"www.example.org. 60 IN HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1,10.96.0.1 ipv6hint=64:ff9b::a60:1"},
		"inner.wild.test HTTPS": {"inner.wild.test. 60 IN HTTPS 1 . ipv4hint=10.96.0.1"},
	})
	r := l.ask("10.1.0.2", "www.example.org", dns.TypeHTTPS)
	equal(t, "answer", data(r.Answer), []string{`www.example.org. 60 HTTPS 1 . alpn="h2" ipv4hint="192.0.2.1"`})
	equal(t, "grants", l.granted(), []string{"web www.example.org [192.0.2.1] tcp/443 +2m0s"})
	r = l.ask("10.1.0.2", "inner.wild.test", dns.TypeHTTPS)
	equal(t, "answer of a blocked one", data(r.Answer), []string{"inner.wild.test. 60 HTTPS 1 ."})
	diff.Equal(t, "blocked", l.log.last(t).Verdict.String(), "verdict")
}

func TestIdentify(t *testing.T) {
	l := newLab(t, nil)
	l.s.source = plainSource
	local := netip.MustParseAddr("169.254.20.53")
	l.s.SetCluster(Cluster{Nodes: addrsOf("192.0.2.250", "10.1.0.3"), Peers: addrsOf("192.0.2.251")})
	for _, tt := range []struct {
		from  string
		pod   string // of the view
		known bool
		node  bool
	}{
		{from: "10.1.0.2", pod: "web", known: true},
		{from: "::ffff:10.1.0.2", pod: "web", known: true}, // as a dual-stack socket tells it
		{from: "2001:db8:1::2", pod: "web", known: true},
		{from: "2001:db8:1::2%eth0", pod: "web", known: true},
		{from: "10.1.0.6", known: true},
		{from: "127.0.0.1", known: true, node: true},
		{from: "::1", known: true, node: true},
		{from: "169.254.20.53", known: true, node: true},
		{from: "192.0.2.250", known: true, node: true},
		{from: "10.1.0.3", pod: "quiet", known: true}, // though it is the node's as well, below
		{from: "169.254.20.54"},
		{from: "192.0.2.251"}, // another node is an unknown source
		{from: "10.1.0.200"},
		{from: "2001:db8:1::3"},
		{from: "fe80::1%eth0"},
	} {
		a := l.s.identify(netip.MustParseAddr(tt.from), local)
		pod := ""
		if a.view != nil {
			pod = a.view.Pod.Name
		}
		if pod != tt.pod || a.known != tt.known || a.node != tt.node || a.addr.Zone() != "" || a.addr.Is4In6() {
			t.Errorf("%s: %+v, pod %q", tt.from, a, pod)
		}
	}
}

func TestIdentifyBeforeAnySnapshot(t *testing.T) {
	l := newLab(t, nil)
	l.s.snapshot.Store(nil)
	if a := l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{}); a.known || a.view != nil {
		t.Errorf("known: %+v", a)
	}
	if a := l.s.identify(netip.MustParseAddr("127.0.0.1"), netip.Addr{}); !a.node {
		t.Errorf("the node is not: %+v", a)
	}
}

// TestConflictingAddressIsGrantedNothing: two pods claim one address, so it is unknown
// which of them asks.
func TestConflictingAddressIsGrantedNothing(t *testing.T) {
	l := newLab(t, labTable)
	in := compile.Input{Policies: policiesOf(t, labPolicies), Pods: []policy.Pod{labPod("web", "10.1.0.30"), labPod("quiet", "10.1.0.30")}}
	l.s.Publish(compile.New().Compile(in))
	l.ask("10.1.0.30", "www.example.org", dns.TypeA)
	diff.Empty(t, l.granter.Grants(), "granted")
}

// searchList is the resolv.conf of a pod of the namespace shop, on a node whose own
// domain is corp.test, with ndots:5.
var searchList = []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.test"}

// stub walks the search list as a libc does and returns the first addresses it finds.
// musl gives up at any response code but NXDOMAIN; glibc continues.
func stub(l *lab, from, qname string, musl bool) []string {
	tries := make([]string, 0, 5)
	for _, s := range searchList {
		tries = append(tries, qname+"."+s)
	}
	for _, try := range append(tries, qname) {
		r := l.ask(from, try, dns.TypeA)
		var addrs []string
		for _, rr := range r.Answer {
			if a, ok := rr.(*dns.A); ok {
				addrs = append(addrs, a.A.String())
			}
		}
		if len(addrs) > 0 {
			return addrs
		}
		if r.Rcode != dns.RcodeNameError && r.Rcode != dns.RcodeSuccess && musl {
			return nil
		}
	}
	return nil
}

// TestSearchPaths: under every setting of dns.unmatched a pod with ndots:5 gets to
// the addresses of its allowed name, with either libc, and they are granted.
func TestSearchPaths(t *testing.T) {
	simple := map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}}
	autopath := map[string][]string{
		"www.example.org A":                        {"www.example.org. 60 IN A 192.0.2.1"},
		"www.example.org.shop.svc.cluster.local A": {"www.example.org.shop.svc.cluster.local. 60 IN CNAME www.example.org.", "www.example.org. 60 IN A 192.0.2.66"},
	}
	refusing := map[string][]string{
		"www.example.org A":                        {"www.example.org. 60 IN A 192.0.2.1"},
		"www.example.org.shop.svc.cluster.local A": {"REFUSED"},
		"www.example.org.corp.test A":              {"REFUSED"},
	}
	for world, table := range map[string]map[string][]string{"simple": simple, "autopath": autopath, "refusing": refusing} {
		for pod, from := range map[string]string{"web": "10.1.0.2", "quiet": "10.1.0.3", "strict": "10.1.0.4"} {
			for _, musl := range []bool{false, true} {
				if world == "refusing" && pod == "web" && musl {
					continue // under Resolve the upstream's word is the pod's
				}
				l := newLab(t, table)
				addrs := stub(l, from, "www.example.org", musl)
				equal(t, world+" "+pod, addrs, []string{"192.0.2.1"})
				g := l.granter.Grants()
				if len(g) != 1 || g[0].Pod.Name != pod || g[0].Name != policytest.Name("www.example.org") || g[0].Addrs[0].String() != "192.0.2.1" {
					t.Errorf("%s %s: grants %v", world, pod, g)
				}
			}
		}
	}
}

// TestSearchPathOfAForbiddenName: it opens nothing, and asks no outside name of
// anybody under the strict settings.
func TestSearchPathOfAForbiddenName(t *testing.T) {
	table := map[string][]string{"other.test A": {"other.test. 60 IN A 192.0.2.66"}}
	for _, from := range []string{"10.1.0.3", "10.1.0.4"} {
		l := newLab(t, table)
		if addrs := stub(l, from, "other.test", false); addrs != nil || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v, grants %v", from, addrs, l.granter.Grants())
		}
		for _, key := range l.up.asked {
			if !strings.HasSuffix(key, "cluster.local A") {
				t.Errorf("%s: asked %s", from, key)
			}
		}
	}
}

// TestServiceByShortName: names inside the cluster resolve through the same list.
func TestServiceByShortName(t *testing.T) {
	table := map[string][]string{"db.shop.svc.cluster.local A": {"db.shop.svc.cluster.local. 30 IN A 10.96.0.9"}}
	for from, granted := range map[string]int{"10.1.0.2": 1, "10.1.0.4": 0} {
		l := newLab(t, table)
		equal(t, from, stub(l, from, "db", true), []string{"10.96.0.9"})
		diff.Equal(t, granted, len(l.granter.Grants()), from, "grants")
	}
}
