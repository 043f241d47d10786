package proxy

import (
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
)

// TestGuardOfNamesThatLeaveTheCluster: where a name of the cluster leads to one outside, as a Service
// with externalName does, the owner of the outside name opens no address of the cluster. A name
// of the cluster that leads to another one does.
func TestGuardOfNamesThatLeaveTheCluster(t *testing.T) {
	const db = "db.shop.svc.cluster.local"
	table := map[string][]string{}
	l := newLab(t, table)
	answer := func(chain ...string) []string {
		owner, records := db+".", []string(nil)
		for _, to := range chain[:len(chain)-1] {
			records = append(records, owner+" 60 IN CNAME "+to)
			owner = to
		}
		return append(records, owner+" 60 IN A "+chain[len(chain)-1])
	}
	for _, c := range []struct {
		what    string
		answer  []string
		verdict audit.Verdict
	}{
		{"a Service", answer("10.96.0.9"), audit.Allowed},
		{"another name of the cluster", answer("db.infra.svc.cluster.local.", "10.96.0.9"), audit.Allowed},
		{"outside", answer("db.partner.test.", "198.51.100.7"), audit.Allowed},
		{"a Service by an outside name", answer("db.partner.test.", "10.96.0.9"), audit.Blocked},
		{"a pod by an outside name", answer("db.partner.test.", "10.1.0.3"), audit.Blocked},
		{"the node by two outside names", answer("db.partner.test.", "x.partner.test.", "192.0.2.250"), audit.Blocked},
		{"a Service by an outside name and one of the cluster", answer("db.partner.test.", "kubernetes.default.svc.cluster.local.", "10.96.0.9"), audit.Blocked},
		{"a Service by an outside name with an exception", answer("app.ingress.test.", "10.96.7.9"), audit.Allowed},
	} {
		l.up.mu.Lock()
		table[db+" A"] = c.answer
		l.up.mu.Unlock()
		before := len(l.granted())
		r := l.ask("10.1.0.2", db, dns.TypeA)
		addresses := slices.ContainsFunc(r.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeA })
		opened := len(l.granted()) > before
		if rec := l.log.last(t); rec.Verdict != c.verdict || addresses != (c.verdict == audit.Allowed) || opened != addresses {
			t.Errorf("%s: %v, %v, opened %t", c.what, rec.Verdict, data(r.Answer), opened)
		}
	}
	l.up.mu.Lock()
	table[db+" SRV"] = []string{db + ". 60 IN SRV 0 0 443 host.partner.test."}
	table["host.partner.test A"] = []string{"host.partner.test. 60 IN A 10.96.0.9", "host.partner.test. 60 IN A 198.51.100.8"}
	l.up.mu.Unlock()
	l.ask("10.1.0.2", db, dns.TypeSRV)
	equal(t, "the host of a service", data(l.ask("10.1.0.2", "host.partner.test", dns.TypeA).Answer), []string{"host.partner.test. 60 A 198.51.100.8"})
}
