package proxy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/diff"
)

const (
	denyPorts  = "tier: Admin, priority: 1, egress: [{action: Deny, ports: [{protocol: TCP, port: 443}], matches: [{name: www.test}, {pattern: '**.corp.test'}]}]"
	denyAll    = "tier: Admin, priority: 1, egress: [{action: Deny, matches: [{name: www.test}, {pattern: '**.corp.test'}]}]"
	showDenied = denyAll + ", dns: {denied: Resolve}"
	acceptAll  = "tier: Baseline, priority: 1, egress: [{action: Accept, matches: [{pattern: '**'}]}]"
)

// orderLab is a cacheLab whose pod strict has these cluster policies alone.
func orderLab(t *testing.T, table map[string][]string, specs ...string) *cacheLab {
	t.Helper()
	l := newCacheLab(t, table, prefetched)
	l.publish(specs...)
	return l
}

func (l *cacheLab) publish(specs ...string) {
	l.t.Helper()
	var cluster []*v1alpha1.ClusterFQDNNetworkPolicy
	for i, spec := range specs {
		cluster = append(cluster, clusterPolicy(l.t, "c"+itoa(i), spec))
	}
	l.s.Publish(inOrder(l.t, nil, cluster...))
}

// TestNoAnswerWithoutItsDenyEntries: a kernel that does not take them costs SERVFAIL.
func TestNoAnswerWithoutItsDenyEntries(t *testing.T) {
	for _, spec := range []string{denyPorts, showDenied, "tier: Admin, priority: 1, egress: [{action: Pass, matches: [{name: www.test}]}]"} {
		l := orderLab(t, orderTable, spec)
		l.kernel.fail(errors.New("full"))
		if r, rec := l.decided(newQuery("www.test", dns.TypeA)); r.Rcode != dns.RcodeServerFailure || len(r.Answer) > 0 || rec.Verdict != audit.Failed || rec.Rule != nil {
			t.Errorf("%s: %v, logged %+v", spec, r, rec)
		}
		l.kernel.fail(nil)
		wantAnswer(t, 3, l.decide(newQuery("www.test", dns.TypeA)), spec)
	}
}

// TestDenyEntriesOfKeptAnswers: a reply of the packet cache has its entries live for as long
// as after a question of its own, without a write; lost entries are written again.
func TestDenyEntriesOfKeptAnswers(t *testing.T) {
	l := newCacheLab(t, orderTable) // without prefetches, which replace the answer at any moment
	l.publish(denyPorts)
	q := newQuery("www.test", dns.TypeA)
	l.any(strictPod, q)
	l.any(strictPod, q)
	writes := l.kernel.writes
	for at := time.Second; at < 500*time.Second; at += 7 * time.Second {
		l.at.Store(int64(at))
		if _, hit := l.any(strictPod, q); !hit && at > 10*time.Second {
			t.Fatalf("at %v the packet cache has no reply", at)
		}
		for o, until := range l.kernel.known() {
			if left := until.Sub(l.now()); left < 24*time.Hour {
				t.Fatalf("at %v, %+v lives for %v", at, o, left)
			}
		}
	}
	if l.kernel.writes != writes {
		t.Errorf("%d writes of the same", l.kernel.writes-writes)
	}
	l.kernel.forget(func(o opening) bool { return o.addr == mustAddr("10.96.0.1") })
	if _, hit := l.any(strictPod, q); hit || len(l.kernel.known()) != 2 {
		t.Errorf("a reply of the cache: %v, entries %q", hit, l.kernel.entries())
	}
}

// TestNamesThatLeadToOthers: an SRV record of a name leads to another, which counts as that
// name for every action, until the record's time is over or no rule has the name.
func TestNamesThatLeadToOthers(t *testing.T) {
	table := map[string][]string{"www.test SRV": {"www.test. 100 IN SRV 0 0 443 host.test."}, "host.test A": {"host.test. 600 IN A 192.0.2.1"}}
	for spec, want := range map[string]string{
		denyPorts:  "d www.test 192.0.2.1 tcp/443 +24h10m0s",
		showDenied: "d www.test 192.0.2.1 any +24h10m0s",
		"tier: Admin, priority: 1, egress: [{action: Pass, matches: [{name: www.test}]}]":      "p www.test 192.0.2.1 any +24h10m0s",
		"tier: Baseline, priority: 1, egress: [{action: Accept, matches: [{name: www.test}]}]": "a www.test 192.0.2.1 any +11m0s",
	} {
		l := orderLab(t, table, spec)
		l.any(strictPod, newQuery("www.test", dns.TypeSRV))
		_, rec := l.decided(newQuery("host.test", dns.TypeA))
		diff.Equal(t, "www.test", rec.Via.String(), spec, "via", rec.Via)
		equal(t, spec, l.kernel.entries(), []string{want})
		l.pass(101 * time.Second)
		l.kernel.forget(func(opening) bool { return true })
		if _, rec = l.decided(newQuery("host.test", dns.TypeA)); rec.Via != "" || len(l.kernel.entries()) > 0 {
			t.Errorf("%s: after its time via %q, entries %q", spec, rec.Via, l.kernel.entries())
		}
		l.any(strictPod, newQuery("www.test", dns.TypeSRV))
		l.publish("tier: Admin, priority: 1, egress: [{action: Deny, matches: [{name: other.test}]}]")
		if _, rec = l.decided(newQuery("host.test", dns.TypeA)); rec.Via != "" || len(l.kernel.entries()) > 0 {
			t.Errorf("%s: without the rule via %q, entries %q", spec, rec.Via, l.kernel.entries())
		}
	}
	// So does a name whose alias a rule denies, and a reply that is kept takes notice.
	table["q.test SRV"] = []string{"q.test. 100 IN CNAME www.test.", "www.test. 100 IN SRV 0 0 443 host.test."}
	led := orderLab(t, table, denyPorts)
	for range 3 {
		led.any(strictPod, newQuery("host.test", dns.TypeA))
	}
	led.any(strictPod, newQuery("q.test", dns.TypeSRV))
	led.any(strictPod, newQuery("host.test", dns.TypeA))
	equal(t, "by an alias", led.kernel.entries(), []string{"d www.test 192.0.2.1 tcp/443 +24h10m0s"})
	// A name that a rule accepts by itself is followed all the same.
	l := orderLab(t, table, denyPorts, acceptAll)
	l.any(strictPod, newQuery("www.test", dns.TypeSRV))
	l.any(strictPod, newQuery("host.test", dns.TypeA))
	equal(t, "both", l.kernel.entries(), []string{"a host.test 192.0.2.1 any +11m0s", "d www.test 192.0.2.1 tcp/443 +24h10m0s"})
	l.any(strictPod, newQuery("host.test", dns.TypeA))
	l.pass(101 * time.Second)
	if _, hit := l.any(strictPod, newQuery("host.test", dns.TypeA)); hit {
		t.Error("the packet cache goes on with the name that led, after its time")
	}
	l.any(strictPod, newQuery("www.test", dns.TypeSRV))
	l.publish(denyAll, acceptAll)
	if r, rec := l.decided(newQuery("host.test", dns.TypeA)); r.Rcode != dns.RcodeNameError || rec.Verdict != audit.NameDenied {
		t.Errorf("the name that led is denied: %v", r)
	}
}

// TestHintsAndOtherTypes: hints of HTTPS records are entered, and of a pod with rules in order
// no reply has an address beside those of the answer to the question.
func TestHintsAndOtherTypes(t *testing.T) {
	l := orderLab(t, map[string][]string{
		"www.test HTTPS": {"www.test. 600 IN HTTPS 1 . ipv4hint=192.0.2.1 ipv6hint=2001:db8:9::1"},
		"mail.test MX":   {"mail.test. 600 IN MX 10 www.test.", "+www.test. 600 IN A 192.0.2.9"},
	}, denyPorts)
	r, rec := l.decided(newQuery("www.test", dns.TypeHTTPS))
	if len(r.Answer) != 1 || rec.Verdict != audit.Unmatched {
		t.Errorf("%v, logged %v", r, rec.Verdict)
	}
	equal(t, "the entries of the hints", l.kernel.entries(), []string{"d www.test 192.0.2.1 tcp/443 +24h10m0s", "d www.test 2001:db8:9::1 tcp/443 +24h10m0s"})
	if r, _ = l.decided(newQuery("mail.test", dns.TypeMX)); len(r.Answer) != 1 || len(r.Extra) != 0 {
		t.Errorf("an address of another name leaves: %v", r)
	}
	q := newQuery("www.test", dns.TypeA)
	q.Question[0].Qclass = dns.ClassCHAOS
	if _, rec = l.decided(q); rec.Verdict != audit.Unmatched || rec.Matches != nil {
		t.Errorf("another class: %+v", rec)
	}
	l.says("www.test A", orderTable["www.test A"]...)
	q.Question[0].Qclass = dns.ClassANY // of which the answer may have the addresses
	for _, logs := range []DecisionLog{l.s.log, nil} {
		l.s.log = logs
		for range 3 {
			if r, _ := l.any(strictPod, q); len(r.Answer) != 1 || r.Answer[0].Header().Rrtype != dns.TypeCNAME {
				t.Errorf("any class: %v", r)
			}
		}
	}
}

// TestUncheckedChains: an answer whose aliases cannot be checked is SERVFAIL, unless rules are
// for the log alone.
func TestUncheckedChains(t *testing.T) {
	table := map[string][]string{"other.test A": {"other.test. 60 IN CNAME a.test.", "a.test. 60 IN CNAME other.test.", "a.test. 60 IN A 192.0.2.1"}}
	for spec, want := range map[string]int{denyAll: dns.RcodeServerFailure, denyAll + ", enforcement: Audit": dns.RcodeSuccess} {
		l := orderLab(t, table, spec)
		wantCode(t, want, l.decide(newQuery("other.test", dns.TypeA)), spec)
	}
}

// TestToldTTLs: rules that deny or pass neither shorten nor lengthen the TTLs in the reply.
func TestToldTTLs(t *testing.T) {
	short := ", ttl: {minSeconds: 1, maxSeconds: 10, reuseSeconds: 5}"
	for _, c := range []struct {
		specs []string
		want  uint32
	}{
		{[]string{denyPorts + short}, 600},
		{[]string{denyPorts + short, acceptAll}, 600},
		{[]string{denyPorts, acceptAll + ", ttl: {maxSeconds: 100}"}, 100},
		{[]string{denyPorts, acceptAll + ", ttl: {maxSeconds: 100}", "tier: Admin, priority: 2, egress: [{action: Accept, matches: [{name: www.test}], ports: [{port: 80}]}]"}, 100},
	} {
		l := orderLab(t, orderTable, c.specs...)
		for range 3 {
			r, _ := l.any(strictPod, newQuery("www.test", dns.TypeA))
			for _, rr := range r.Answer {
				diff.Equal(t, c.want, rr.Header().Ttl, c.specs, "told", rr)
			}
		}
	}
}

// TestSearchFormsInOrder: the form of a name that the pod's resolver completed is denied by a
// rule for either, and else it is completed if a rule accepts the name.
func TestSearchFormsInOrder(t *testing.T) {
	table := map[string][]string{
		"ok.test.corp.test A":          {"ok.test.corp.test. 30 IN CNAME ok.test.", "ok.test. 5 IN A 192.0.2.6"},
		"www.test.svc.cluster.local A": {"www.test.svc.cluster.local. 30 IN CNAME www.test.", "www.test. 5 IN A 192.0.2.7"},
		"ok.test.svc.cluster.local A":  {"ok.test.svc.cluster.local. 30 IN CNAME ok.test.", "ok.test. 5 IN A 192.0.2.6"},
		"ok.test A":                    {"ok.test. 600 IN A 192.0.2.1"},
		"www.test A":                   {"www.test. 30 IN A 192.0.2.7"},
	}
	accept := "tier: Baseline, priority: 1, egress: [{action: Accept, matches: [{name: ok.test}, {name: www.test}]}]"
	for _, c := range []struct {
		specs   []string
		q       string
		rcode   int
		verdict audit.Verdict
		entries []string
	}{
		{[]string{denyAll, accept}, "ok.test.corp.test", dns.RcodeNameError, audit.NameDenied, nil},
		{[]string{denyAll, accept}, "ok.test.svc.cluster.local", dns.RcodeSuccess, audit.Allowed, []string{"a ok.test 192.0.2.1 any +11m0s"}},
		{[]string{denyAll, accept}, "www.test.svc.cluster.local", dns.RcodeNameError, audit.NameDenied, nil},
		{[]string{denyPorts, accept}, "ok.test.corp.test", dns.RcodeSuccess, audit.Allowed, []string{"a ok.test 192.0.2.1 any +11m0s", "d ok.test.corp.test 192.0.2.1 tcp/443 +24h10m0s"}},
		{[]string{showDenied, accept}, "www.test.svc.cluster.local", dns.RcodeSuccess, audit.NameDenied, []string{"d www.test 192.0.2.7 any +24h0m30s"}},
		{[]string{accept + ", dns: {unmatched: Refuse}"}, "ok.test.corp.test", dns.RcodeNameError, audit.Refused, nil}, // REFUSED would end musl's search
		{[]string{accept + ", dns: {unmatched: Refuse}"}, "gone.test.corp.test", dns.RcodeRefused, audit.Refused, nil},
		{[]string{accept + ", dns: {unmatched: Refuse}"}, "gone.svc.cluster.local", dns.RcodeNameError, audit.Unmatched, nil},
	} {
		l := orderLab(t, table, c.specs...)
		r, rec := l.decided(newQuery(c.q, dns.TypeA))
		if r.Rcode != c.rcode || rec.Verdict != c.verdict {
			t.Errorf("%q %s: %s, logged %v", c.specs, c.q, dns.RcodeToString[r.Rcode], rec.Verdict)
		}
		equal(t, c.q, l.kernel.entries(), c.entries)
	}
}

// TestAuditRulesSayWhatTheyWould: both ways, and only where they differ.
func TestAuditRulesSayWhatTheyWould(t *testing.T) {
	const watch = ", enforcement: Audit"
	first := "tier: Admin, priority: 0, egress: [{action: Accept, matches: [{name: www.test}]}]"
	for _, c := range []struct {
		specs    []string
		verdict  audit.Verdict
		would    audit.Verdict
		rule     string // its policy
		policies []string
	}{
		{[]string{denyAll + watch, acceptAll}, audit.Allowed, audit.NameDenied, "c0", []string{"c1", "c0"}},
		{[]string{first + watch, denyAll}, audit.NameDenied, audit.Allowed, "c1", []string{"c1", "c0"}},
		{[]string{denyPorts + watch, acceptAll}, audit.Allowed, audit.None, "", []string{"c1"}},
		{[]string{showDenied + watch, denyAll}, audit.NameDenied, audit.None, "c1", []string{"c1"}},
		{[]string{denyAll + watch}, audit.Unmatched, audit.NameDenied, "c0", []string{"c0"}},
		{[]string{denyPorts + watch}, audit.Unmatched, audit.Unmatched, "", []string{"c0"}}, // where nothing is enforced it is always said
	} {
		l := orderLab(t, orderTable, c.specs...)
		for range 3 {
			l.any(strictPod, newQuery("www.test", dns.TypeA))
		}
		_, rec := l.decided(newQuery("www.test", dns.TypeA))
		rule := ""
		if rec.Rule != nil {
			rule = rec.Rule.Policy
		}
		var policies []string
		for _, m := range rec.Matches {
			policies = append(policies, m.Policy)
		}
		if rec.Verdict != c.verdict || rec.Would != c.would || rule != c.rule || !slices.Equal(policies, c.policies) {
			t.Errorf("%q: %v would %v by %q, matches of %q", c.specs, rec.Verdict, rec.Would, rule, policies)
		}
		if c.verdict != audit.Allowed && len(l.kernel.entries()) > 0 {
			t.Errorf("%q: entries %q", c.specs, l.kernel.entries())
		}
	}
}

// TestDeniedOverEveryTransport: over TCP, and of a pod that was not known yet.
func TestDeniedOverEveryTransport(t *testing.T) {
	l := orderLab(t, orderTable, denyAll)
	packet := packed(t, withOPT(newQuery("www.test", dns.TypeA)))
	r := parsed(t, l.decidedAgain(strictPod, packet, true))
	if r.Rcode != dns.RcodeNameError || reason(r) != "15 denied by a cluster policy (Admin)" {
		t.Errorf("over TCP: %v", r)
	}
	if r, _ := l.decided(newQuery("www.test", dns.TypeA)); reason(r) != "" || r.IsEdns0() != nil {
		t.Errorf("without EDNS: %v", r)
	}
	l.s.Publish(nil)
	h := &inHand{over: make(chan struct{})}
	l.s.park(l.s.identify(mustAddr(strictPod), endpoint), &parkedQuery{local: endpoint, packet: packet, to: h})
	l.publish(denyAll)
	<-h.over
	if r := parsed(t, h.packet); r.Rcode != dns.RcodeNameError {
		t.Errorf("parked: %v", r)
	}
	if s := l.s.Stats(); s.Denied != 3 {
		t.Errorf("%d are counted as denied", s.Denied)
	}
}

// TestAuditChangesNoAnswer: beside a policy that enforces, cluster policies in Audit change no
// reply and no entry.
func TestAuditChangesNoAnswer(t *testing.T) {
	table := map[string][]string{
		"lead.test SRV": {"lead.test. 60 IN SRV 0 0 1 ok.test."},
		"ok.test A":     {"ok.test. 600 IN CNAME edge.test.", "edge.test. 600 IN A 192.0.2.1", "odd.test. 600 IN A 192.0.2.3"},
		"mail.test MX":  {"mail.test. 600 IN MX 10 www.test.", "+www.test. 600 IN A 192.0.2.9"},
		"loop.test A":   {"loop.test. 60 IN CNAME a.test.", "a.test. 60 IN CNAME loop.test.", "a.test. 60 IN A 192.0.2.1"},
		"www.test A":    {"www.test. 600 IN CNAME edge.test.", "edge.test. 600 IN A 192.0.2.1", "odd.test. 600 IN A 192.0.2.3"},
	}
	own := policiesOf(t, "{metadata: {name: own, namespace: shop}, spec: {podSelector: {}, egress: [{matches: [{name: lead.test}], ports: [{protocol: TCP, port: 25}]}, {matches: [{name: ok.test}], ports: [{protocol: TCP, port: 443}]}]}}")
	told := func(cluster ...*v1alpha1.ClusterFQDNNetworkPolicy) (out []string) {
		l := newCacheLab(t, table)
		l.s.Publish(inOrder(t, own, cluster...))
		for _, q := range []*dns.Msg{
			newQuery("lead.test", dns.TypeSRV), newQuery("ok.test", dns.TypeA), newQuery("mail.test", dns.TypeMX), newQuery("loop.test", dns.TypeA), newQuery("www.test", dns.TypeA),
		} {
			r, _ := l.decided(q)
			r.Id = 0
			out = append(out, r.String())
		}
		return append(out, l.kernel.entries()...)
	}
	want := told()
	for _, spec := range []string{denyAll, denyPorts, showDenied, acceptAll, denyAll + ", dns: {unmatched: Refuse}"} {
		equal(t, spec, told(clusterPolicy(t, "c", spec+", enforcement: Audit")), want)
	}
}
