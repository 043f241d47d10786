package suggest

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

const (
	matched = `,"match":{"policy":"shop/out","path":"spec.egress[0].matches[0]","match":"*.example.org"}`
	audited = `,"match":{"policy":"shop/watch","path":"spec.egress[0].matches[0]","match":"*.example.org","audit":true}`
	byOther = `,"pod":"shop/other-1"`
)

// requiredText is a line of a connection to an address that is open by a rule which requires the server name.
func requiredText(reason string) string {
	return strings.Replace(flowText(cart, "denied", "tcp", "192.0.2.10 443", "serverName", named("www.example.org", matched)), `"reason":"serverName"`, `"reason":`+reason+`,"tier":"Namespace","policy":"shop/out","rule":"spec.egress[0]"`, 1)
}

// TestSuggestions: each kind of line, and what becomes of it.
func TestSuggestions(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		o     Options
		whole bool
	}{
		{"nothing", nil, Options{}, true},
		{"one name", []string{flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", ""))}, Options{}, true},
		{"a port that no match has", []string{flowText(cart, "denied", "tcp", "192.0.2.10 8443", "ports", named("www.example.org", matched))}, Options{}, true},
		{"all names of an address", []string{flowText(cart, "denied", "udp", "192.0.2.10 443", "unmatched",
			named("a.test", "")+","+named("b.test", "")+","+named("c.test", byOther))}, Options{}, true},
		{"names share ports", []string{
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.10 80", "unmatched", named("a.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 80", "unmatched", named("b.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 443", "unmatched", named("b.test", "")),
			flowText(cart, "denied", "sctp", "192.0.2.11 7", "unmatched", named("c.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 8000", "unmatched", named("c.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 8001", "unmatched", named("c.test", "")),
		}, Options{}, true},
		{"an Audit run", []string{flowText(cart, "would-deny", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", ""))}, Options{}, true},
		{"what an Audit policy allows opens nothing", []string{flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", audited))}, Options{}, true},
		{"dialled late", []string{flowText(cart, "denied", "tcp", "192.0.2.10 443", "expired", named("www.example.org", matched))}, Options{}, false},
		{"dialled late in an Audit run", []string{flowText(cart, "would-deny", "tcp", "192.0.2.10 443", "expired", named("www.example.org", audited))}, Options{}, false},
		{"late by one name and never by another", []string{flowText(cart, "denied", "tcp", "192.0.2.10 443", "expired",
			named("www.example.org", matched)+","+named("b.test", ""))}, Options{}, true},
		{"an Admin rule", []string{strings.Replace(flowText(cart, "denied", "tcp", "192.0.2.10 443", "rule", named("www.example.org", "")), `"reason"`, `"tier":"Admin","policy":"p","rule":"spec.egress[0]","reason"`, 1)}, Options{}, false},
		{"an Admin rule by address", []string{strings.Replace(flowText(cart, "would-deny", "tcp", "192.0.2.10 443", "rule", ""), `"reason"`, `"tier":"Admin","policy":"a cluster policy (Admin)","reason"`, 1)}, Options{}, false},
		{"encrypted DNS", []string{strings.Replace(flowText(cart, "denied", "tcp", "192.0.2.10 853", "rule", named("dns.example.org", "")), `"reason"`, `"tier":"Namespace","policy":"shop/p","rule":"spec.dns.encrypted","reason"`, 1)}, Options{}, false},
		{"a server name", []string{
			requiredText(`"serverName","server_name":"evil\u000a.test"`), requiredText(`"serverName","server_name":"b.test"`), strings.Replace(requiredText(`"serverName"`), "443", "8443", 1),
			requiredText(`"limit"`), requiredText(`"unchecked"`), // allowed already
		}, Options{}, false},
		{"server names that are required", []string{
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 443", "unmatched", named("b.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 80", "unmatched", named("b.test", "")),
			flowText(cart, "denied", "tcp", "10.96.0.9 443", "unmatched", named("web.pay.svc.cluster.local", "")),
			flowText(cart, "denied", "udp", "192.0.2.12 443", "unmatched", named("c.test", "")),
		}, Options{ServerNames: true}, true},
		{"a Baseline rule", []string{strings.Replace(flowText(cart, "denied", "tcp", "192.0.2.10 443", "rule", named("www.example.org", `,"match":{"policy":"p","path":"spec.egress[0].matches[0]","match":"**.example.org"}`)),
			`"reason"`, `"tier":"Baseline","policy":"p","rule":"spec.egress[0]","reason"`, 1)}, Options{}, true},
		{"the guard", []string{flowText(cart, "denied", "tcp", "10.0.0.1 443", "blocked", named("www.example.org", matched))}, Options{}, false},
		{"by address", []string{flowText(cart, "denied", "tcp", "198.51.100.7 443", "address", "")}, Options{}, false},
		{"by an address of others", []string{flowText(cart, "denied", "tcp", "2001:db8::7 443", "another", named("a.test", byOther))}, Options{}, false},
		{"dialled long after the question", []string{flowText(cart, "would-deny", "tcp", "192.0.2.10 443", "unmatched",
			`{"name":"www.example.org","asked":"2026-05-01T10:30:00.4Z"},{"name":"b.test","asked":"2026-05-01T11:00:00Z"}`)}, Options{}, true},
		{"a ping", []string{flowText(cart, "denied", "icmp", "192.0.2.10", "unmatched", named("www.example.org", ""))}, Options{}, false},
		{"a ping that is allowed", []string{
			flowText(cart, "denied", "icmp", "192.0.2.10", "unmatched", named("www.example.org", "")),
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", "")),
		}, Options{EveryProtocol: true}, true},
		{"a name that no policy can write", []string{flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named(`a\\.b.test`, ""))}, Options{}, false},
		{"no labels", []string{flowText(plainly, "denied", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", ""))}, Options{}, false},
		{"asked for alone", []string{
			asked(cart, "unmatched", "www.example.org", withAnswer),
			asked(cart, "unmatched", "gone.example.org", `,"rcode":"NXDOMAIN"`),
			asked(cart, "refused", "api.example.org", ""),
			asked(cart, "refused", "api.example.org.corp.test", ""),
		}, Options{}, true},
		{"asked for alone and wanted", []string{
			strings.Replace(asked(cart, "allowed", "open.example.org", withAnswer), `,"answers"`, `,"matches":[{"policy":"shop/out","path":"spec.egress[0].matches[0]","match":"open.example.org"}],"answers"`, 1),
			asked(cart, "unmatched", "www.example.org", withAnswer),
			asked(cart, "unmatched", "gone.example.org", `,"rcode":"NXDOMAIN"`),
			asked(cart, "unmatched", "partner.shop.svc.cluster.local", `,"via":"api.partner.example","chain":["api.partner.example"]`+withAnswer),
			asked(cart, "refused", "api.example.org", ""),
			asked(cart, "refused", "api.example.org.corp.test", ""),
			asked(cart, "refused", "x7.limited.test", `,"limit":"rate"`),
			flowText(cart, "denied", "tcp", "192.0.2.10 80", "unmatched", named("www.example.org", "")),
		}, Options{Unused: "tcp/443"}, true},
		{"policies of that name are there", []string{
			strings.Replace(flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")), "shop/watch", "shop/cart-egress", 1),
			asked(cart, "allowed", "b.test", `,"matches":[{"policy":"shop/cart-egress-2","path":"spec.egress[0].matches[0]","match":"b.test"}]`),
		}, Options{}, true},
		{"workloads of one name", []string{
			flowText(`{"namespace":"shop","name":"a","workload":"app=cart,tier=front","ip":"10.0.0.1"}`, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
			flowText(`{"namespace":"pay","name":"a","workload":"app=cart","ip":"10.0.0.2"}`, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.test", "")),
		}, Options{}, true},
		{"folded", []string{
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.example.org", "")+","+named("b.example.org", "")+","+named("c.d.example.org", "")),
			flowText(cart, "denied", "tcp", "192.0.2.10 80", "unmatched", named("b.example.org", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 443", "unmatched", named("x.test", "")+","+named("y.test", "")+","+named("example.org", "")),
		}, Options{Fold: 2}, true},
		{"folded with unused below and beside", []string{
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.example.org", "")+","+named("b.example.org", "")),
			asked(cart, "unmatched", "c.example.org", withAnswer), asked(cart, "unmatched", "d.c.example.org", withAnswer),
		}, Options{Fold: 2, Unused: "tcp/443"}, true},
		{"folded deep", []string{
			flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("a.example.org", "")+","+named("b.c.example.org", "")),
			flowText(cart, "denied", "tcp", "192.0.2.11 443", "unmatched", named("a.s3.amazonaws.com", "")+","+named("b.s3.amazonaws.com", "")),
		}, Options{Fold: 2, Deep: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := logOf(t, c.lines...).Suggest(c.o)
			diff.Equal(t, c.whole, s.Whole(), "whole")
			if (len(s.Warnings()) == 0) != c.whole {
				t.Errorf("warnings %q", s.Warnings())
			}
			var b strings.Builder
			fatal.If(t, s.Write(&b))
			golden.Compare(t, strings.ReplaceAll(c.name, " ", "-"), b.String())
		})
	}
}

// TestAddRefuses: lines that no agent can have written.
func TestAddRefuses(t *testing.T) {
	for _, c := range []struct {
		line audit.Line
		want string
	}{
		{audit.Line{Pod: audit.LinePod{Namespace: "a\nb", Name: "c"}}, `pod "c" of namespace "a\nb" cannot exist`},
		{audit.Line{Pod: audit.LinePod{Namespace: "a", Name: ""}}, `pod "" of namespace "a" cannot exist`},
		{audit.Line{Pod: audit.LinePod{Namespace: "a", Name: "c", Workload: "x=y=z"}}, `workload "x=y=z" of pod a/c: `},
		{audit.Line{Pod: audit.LinePod{Namespace: "a", Name: "c"}, Kind: audit.KindFlow}, "a flow without a destination"},
	} {
		l := NewLog()
		err := l.Add(c.line)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.line, err)
		}
		if s := l.Suggest(Options{}); len(s.Parts) > 0 {
			t.Errorf("%+v: suggested %+v", c.line, s)
		}
	}
}

// TestNoRulesForIngress: of connections to a pod nothing is suggested.
func TestNoRulesForIngress(t *testing.T) {
	l := logOf(t, `{"kind":"flow","verdict":"denied","direction":"ingress","pod":`+cart+`,"protocol":"tcp","source":{"address":"10.244.2.9"},"destination":{"address":"10.244.1.17","port":80},"reason":"isolated","count":1}`)
	if s, common := l.Suggest(Options{}), l.SuggestCluster(ClusterOptions{Namespaces: 1}); len(s.objects())+len(s.Parts)+len(common.objects()) > 0 {
		t.Errorf("%+v, %+v", s, common)
	}
}

// TestCommentsHoldNothingOfALog that could end them.
func TestCommentsHoldNothingOfALog(t *testing.T) {
	p := Part{Namespace: "shop", Selector: "app=cart", Notes: []string{"a\nb\u2028c\x1b[1m"}}
	var b strings.Builder
	fatal.If(t, (Suggestion{[]Part{p}}).Write(&b))
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if !strings.HasPrefix(line, "# ") || strings.ContainsAny(line, "\x1b\u2028") {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// TestForAnotherEngine: beside policies for pods that a NetworkPolicy limits, the suggestion has what another
// engine needs.
func TestForAnotherEngine(t *testing.T) {
	l := logOf(t, flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("api.test", "")), flowText(plainly, "denied", "tcp", "192.0.2.10 443", "unmatched", named("api.test", "")))
	limits := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limits"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
	s := l.Suggest(Options{NetworkPolicies: []*networkingv1.NetworkPolicy{limits}})
	var b strings.Builder
	fatal.If(t, s.Write(&b))
	list, err := s.List()
	fatal.If(t, err)
	for _, text := range []string{b.String(), string(list)} {
		if strings.Count(text, "cart-egress-for-engine-") != 1 || strings.Count(text, "for-engine-") != 1 || !strings.Contains(text, netpol.IgnoreLabel) {
			t.Error(text)
		}
	}
}
