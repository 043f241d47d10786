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
	"github.com/namegate/namegate/testkit/diff"
)

const serverNamePolicies = `
metadata: {name: checked, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  egress:
  - {matches: [{name: www.example.org}, {name: app.ingress.test}, {name: db.shop.svc.cluster.local}, {name: host.test}], ports: [{protocol: TCP, port: 443}], serverName: Require}
  - {matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 80}]}
---
metadata: {name: plain, namespace: shop}
spec:
  podSelector: {matchLabels: {app: quiet}}
  egress: [{matches: [{name: www.example.org}]}]
---
metadata: {name: either, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress:
  - {matches: [{name: www.example.org}, {name: app.ingress.test}], ports: [{protocol: TCP, port: 443}], serverName: Require}
  - {matches: [{name: "www.example.org"}, {name: app.ingress.test}], ports: [{protocol: TCP, port: 400, endPort: 500}]}
---
metadata: {name: audited, namespace: shop}
spec:
  podSelector: {matchLabels: {app: watched}}
  egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 443}], serverName: Require}]
  enforcement: Audit
`

func newServerNameLab(t *testing.T, table map[string][]string) *cacheLab {
	l := newCacheLab(t, table)
	l.s.Publish(compiled(t, serverNamePolicies, labPods))
	return l
}

// told asks for a name and returns the records of the answer section without owner and TTL.
func (l *cacheLab) told(from, qname string, qtype uint16) (out []string, hit bool) {
	l.t.Helper()
	r, hit := l.any(from, newQuery(qname, qtype))
	for _, rr := range r.Answer {
		out = append(out, strings.Join(strings.Fields(rr.String())[3:], " "))
	}
	return out, hit
}

// tells compares them.
func (l *cacheLab) tells(from, qname string, qtype uint16, want ...string) {
	l.t.Helper()
	got, _ := l.told(from, qname, qtype)
	diff.Error(l.t, want, got, from, "asks", qname)
}

// TestServerNameIsShown: in answers of type HTTPS to pods of which a rule that requires the server name alone accepts a port
// of the name, also from the packet cache, and in those that are signed.
func TestServerNameIsShown(t *testing.T) {
	const q = "www.example.org. 300 IN "
	full := []string{q + "HTTPS 1 . alpn=h3,h2 ipv4hint=192.0.2.1 ech=AAAA", q + "HTTPS 2 host.test. alpn=h3"}
	l := newServerNameLab(t, map[string][]string{"www.example.org HTTPS": full, "www.example.org A": {q + "A 192.0.2.1"}})
	shown := []string{`HTTPS 1 . alpn="h2" ipv4hint="192.0.2.1"`}
	whole := []string{`HTTPS 1 . alpn="h3,h2" ipv4hint="192.0.2.1" ech="AAAA"`, `HTTPS 2 host.test. alpn="h3"`}
	ask := func(wantHits int) {
		t.Helper()
		for from, want := range map[string][]string{"10.1.0.2": shown, "10.1.0.3": whole, "10.1.0.4": whole, "10.1.0.5": whole, "10.1.0.6": whole} {
			hits := 0
			for range 3 {
				got, hit := l.told(from, "www.example.org", dns.TypeHTTPS)
				diff.Error(t, want, got, from)
				if hit {
					hits++
				}
			}
			if hits < wantHits {
				t.Errorf("%s: %d of 3 replies are given again", from, hits)
			}
		}
	}
	ask(1)
	ask(3)
	l.tells("10.1.0.2", "www.example.org", dns.TypeA, "A 192.0.2.1")
	signed := q + "RRSIG HTTPS 13 2 60 20300101000000 20200101000000 1 example.org. AAAA"
	l.pass(time.Hour)
	l.says("www.example.org HTTPS", append(full, signed)...)
	shown = nil
	whole = append(whole, "RRSIG HTTPS 13 2 60 20300101000000 20200101000000 1 example.org. AAAA")
	ask(1)
}

// TestServerNameOutsideAlone: an address of the cluster that a name may open is in the answer, and no rule that
// requires the server name opens it; one that changes its place is decided again.
func TestServerNameOutsideAlone(t *testing.T) {
	l := newServerNameLab(t, map[string][]string{
		"app.ingress.test A":          {"app.ingress.test. 60 IN A 10.96.7.1", "app.ingress.test. 60 IN A 192.0.2.1", "app.ingress.test. 30 IN A 192.0.2.2"},
		"app.ingress.test AAAA":       {"app.ingress.test. 60 IN AAAA 64:ff9b::a60:701", "app.ingress.test. 60 IN AAAA 2001:db8::1"},
		"db.shop.svc.cluster.local A": {"db.shop.svc.cluster.local. 60 IN A 10.96.0.7"},
	})
	opened := func(of *cacheLab, app string) (out []string) {
		for o := range of.kernel.open {
			if o.pod.Name == app {
				out = append(out, fmt.Sprint(o.name, " ", o.addr, " ", o.ports, " ", o.rule.ServerName()))
			}
		}
		slices.Sort(out)
		return out
	}
	answers := func() (out []string) {
		for _, a := range l.lines.all[len(l.lines.all)-1].Answers {
			ports := policy.PortSet("")
			for _, o := range a.Openings {
				ports += " " + o.Ports
			}
			out = append(out, a.Addr.String()+string(ports)+" "+a.Blocked)
		}
		return out
	}
	for range 3 {
		l.tells("10.1.0.2", "app.ingress.test", dns.TypeA, "A 10.96.7.1", "A 192.0.2.1", "A 192.0.2.2")
		diff.Error(t, []string{"10.96.7.1 " + audit.BlockedInside, "192.0.2.1 tcp/443 ", "192.0.2.2 tcp/443 "}, answers())
		diff.Error(t, []string{"app.ingress.test 192.0.2.1 tcp/443 true", "app.ingress.test 192.0.2.2 tcp/443 true"}, opened(l, "web"))
	}
	l.tells("10.1.0.2", "db.shop.svc.cluster.local", dns.TypeA, "A 10.96.0.7")
	diff.Error(t, []string{"10.96.0.7 " + audit.BlockedInside}, answers())
	diff.Error(t, audit.Allowed, l.lines.all[0].Verdict)
	l.tells("10.1.0.2", "app.ingress.test", dns.TypeAAAA, "AAAA 64:ff9b::a60:701", "AAAA 2001:db8::1")
	diff.Error(t, []string{"64:ff9b::a60:701 " + audit.BlockedInside, "2001:db8::1 tcp/443 "}, answers())
	for range 3 { // a plain rule opens it
		l.tells("10.1.0.4", "app.ingress.test", dns.TypeA, "A 10.96.7.1", "A 192.0.2.1", "A 192.0.2.2")
		diff.Error(t, []string{"10.96.7.1 tcp/400-500 ", "192.0.2.1 tcp/400-500 tcp/443 ", "192.0.2.2 tcp/400-500 tcp/443 "}, answers())
		diff.Error(t, []string{"app.ingress.test 10.96.7.1 tcp/400-500 false", "app.ingress.test 192.0.2.1 tcp/400-500 false", "app.ingress.test 192.0.2.1 tcp/443 true",
			"app.ingress.test 192.0.2.2 tcp/400-500 false", "app.ingress.test 192.0.2.2 tcp/443 true"}, opened(l, "strict"))
	}
}

// TestServerNamePlaceChanges: an address for which the guard has no reason becomes the cluster's.
func TestServerNamePlaceChanges(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"app.ingress.test A": {"app.ingress.test. 600 IN A 198.51.100.7"}}, "cache", "rebind allow ingress.test 198.51.100.0/24")
	l.s.Publish(compiled(t, serverNamePolicies, labPods))
	ask := func() string {
		l.tells("10.1.0.2", "app.ingress.test", dns.TypeA, "A 198.51.100.7")
		return l.lines.all[0].Answers[0].Blocked
	}
	for range 3 {
		diff.Error(t, "", ask())
	}
	l.s.SetCluster(Cluster{Services: addrsOf("198.51.100.7")})
	for range 3 {
		diff.Error(t, audit.BlockedInside, ask())
	}
	l.s.SetCluster(Cluster{})
	diff.Error(t, "", ask())
}
