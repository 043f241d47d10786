package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
)

// db is the name of a Service.
const db = "db.shop.svc.cluster.local"

// chain is an answer for db with CNAMEs, and addresses at their end.
func chain(names ...string) (records []string) {
	owner := db
	for _, to := range names {
		if to[0] >= '0' && to[0] <= '9' {
			records = append(records, owner+". 60 IN A "+to)
			continue
		}
		records = append(records, owner+". 60 IN CNAME "+to+".")
		owner = to
	}
	return records
}

// TestNamesOfTheCluster: tenants write the names of the cluster. Such a name opens addresses of
// the cluster alone, and where it leads to a name outside, as a Service with externalName does,
// the outside name is decided in its place, by its own rules, its own answer and its own guard.
func TestNamesOfTheCluster(t *testing.T) {
	table := map[string][]string{
		"a.wild.test A":      {"a.wild.test. 60 IN CNAME edge.cdn.test.", "edge.cdn.test. 60 IN A 198.51.100.7"},
		"in.wild.test A":     {"in.wild.test. 60 IN A 10.96.0.9"},
		"pod.wild.test A":    {"pod.wild.test. 60 IN A 10.1.0.3"},
		"node.wild.test A":   {"node.wild.test. 60 IN A 192.0.2.250"},
		"app.ingress.test A": {"app.ingress.test. 60 IN A 10.96.7.9"},
		db + ".corp.test A":  {db + ".corp.test. 60 IN CNAME " + db + "."},
	}
	l := newLab(t, table)
	for _, c := range []struct {
		what    string
		answer  []string
		verdict audit.Verdict
		reply   string // names of CNAMEs and addresses
		grant   string // the name and the addresses, "" for none
		via     string
	}{
		{"a Service", chain("10.96.0.9"), audit.Allowed, "10.96.0.9", db + " 10.96.0.9", ""},
		{"another name of the cluster", chain("db.infra.svc.cluster.local", "10.96.0.9"), audit.Allowed, "db.infra.svc.cluster.local 10.96.0.9", db + " 10.96.0.9", ""},
		{"an endpoint outside", chain("198.51.100.1"), audit.Blocked, "", "", ""},
		{"endpoints inside and outside", chain("198.51.100.1", "10.1.0.3", "192.0.2.250", "203.0.113.250"), audit.Allowed, "10.1.0.3 192.0.2.250 203.0.113.250", db + " 10.1.0.3 192.0.2.250 203.0.113.250", ""},
		{"an outside name that no rule has", chain("db.partner.test", "198.51.100.7"), audit.Unmatched, "db.partner.test 198.51.100.7", "", "db.partner.test"},
		{"an outside name that a rule has", chain("a.wild.test", "198.51.100.1"), audit.Allowed, "a.wild.test edge.cdn.test 198.51.100.7", "a.wild.test 198.51.100.7", "a.wild.test"},
		{"an outside name by two of the cluster", chain("x.infra.svc.cluster.local", "y.infra.svc.cluster.local", "a.wild.test", "10.96.0.1"), audit.Allowed,
			"x.infra.svc.cluster.local y.infra.svc.cluster.local a.wild.test edge.cdn.test 198.51.100.7", "a.wild.test 198.51.100.7", "a.wild.test"},
		{"an outside name that leads back", chain("a.wild.test", "kubernetes.default.svc.cluster.local", "10.96.0.1"), audit.Allowed, "a.wild.test edge.cdn.test 198.51.100.7", "a.wild.test 198.51.100.7", "a.wild.test"},
		{"a Service by an outside name", chain("in.wild.test", "10.96.0.9"), audit.Blocked, "in.wild.test", "", "in.wild.test"},
		{"a pod by an outside name", chain("pod.wild.test", "10.1.0.3"), audit.Blocked, "pod.wild.test", "", "pod.wild.test"},
		{"the node by an outside name", chain("node.wild.test", "192.0.2.250"), audit.Blocked, "node.wild.test", "", "node.wild.test"},
		{"an outside name with an exception", chain("app.ingress.test", "10.96.7.9"), audit.Allowed, "app.ingress.test 10.96.7.9", "app.ingress.test 10.96.7.9", "app.ingress.test"},
		{"a name alike", chain("notcluster.local", "198.51.100.1"), audit.Unmatched, "notcluster.local 198.51.100.1", "", "notcluster.local"},
	} {
		for _, q := range []string{db, db + ".corp.test"} { // the second completes it
			l.up.mu.Lock()
			table[db+" A"] = c.answer
			l.up.mu.Unlock()
			before := len(l.granted())
			reply := []string{}
			for _, rr := range l.ask("10.1.0.2", q, dns.TypeA).Answer {
				if cname, is := rr.(*dns.CNAME); is {
					reply = append(reply, strings.TrimSuffix(cname.Target, "."))
				} else {
					reply = append(reply, rr.(*dns.A).A.String())
				}
			}
			want, grants := strings.Fields(c.reply), []string(nil)
			if q != db {
				want = append([]string{db}, want...)
			}
			if name, addrs, some := strings.Cut(c.grant, " "); some {
				grants = []string{"web " + name + " [" + addrs + "] tcp/443 +2m0s"}
			}
			rec := l.log.last(t)
			via := strings.TrimSuffix(rec.Via.String(), ".")
			if rec.Verdict != c.verdict || via != c.via || !slices.Equal(reply, want) || !slices.Equal(l.granted()[before:], grants) {
				t.Errorf("%s, %s: %v via %q, %q, opened %q", c.what, q, rec.Verdict, rec.Via, reply, l.granted()[before:])
			}
		}
	}
}

// TestWhatNamesOfTheClusterLeadTo: the host of an SRV record of a name of the cluster counts as no other
// name, and strict policies answer for the outside name behind one as for the question.
func TestWhatNamesOfTheClusterLeadTo(t *testing.T) {
	table := map[string][]string{
		"www.example.org A":   {"www.example.org. 60 IN A 198.51.100.9"},
		"host.partner.test A": {"host.partner.test. 60 IN A 198.51.100.8"},
		db + " SRV":           {db + ". 60 IN SRV 0 0 443 host.partner.test."},
		db + " A":             chain("db.partner.test", "198.51.100.7"),
	}
	l := newLab(t, table)
	l.ask("10.1.0.2", db, dns.TypeSRV)
	l.ask("10.1.0.2", "host.partner.test", dns.TypeA)
	if rec := l.log.last(t); rec.Verdict != audit.Unmatched || rec.Via != "" {
		t.Errorf("the host of a service: %v via %q", rec.Verdict, rec.Via)
	}
	for pod, want := range map[string]int{"10.1.0.3": dns.RcodeNameError, "10.1.0.4": dns.RcodeRefused, "10.1.0.5": dns.RcodeSuccess, "10.1.0.6": dns.RcodeSuccess} {
		if r := l.ask(pod, db, dns.TypeA); r.Rcode != want || (len(r.Answer) > 0) != (want == dns.RcodeSuccess) {
			t.Errorf("%s: %v", pod, r)
		}
	}
	l.up.mu.Lock()
	table[db+" A"] = chain("www.example.org", "198.51.100.9")
	l.up.mu.Unlock()
	for _, pod := range []string{"10.1.0.3", "10.1.0.4"} {
		wantAnswer(t, 2, l.ask(pod, db, dns.TypeA), pod)
	}
}
