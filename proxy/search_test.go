package proxy

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

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
