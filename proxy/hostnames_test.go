package proxy

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy/fqdn"
)

// TestNamesOfFailsafesAreAnswered: no rule, no default and no limit keeps a node from the addresses of a
// name of its failsafes. Other names are refused as before.
func TestNamesOfFailsafesAreAnswered(t *testing.T) {
	name, err := fqdn.ParseName("a.denied.test")
	fatal.If(t, err)
	strict := strings.Replace(hostPolicy, "  egress:", "  dns: {denied: Refuse, unmatched: NXDomain, types: [AAAA], maxLabels: 1, maxQueryRate: 1}\n  egress:", 1)
	for text, policy := range map[string]string{
		"a rule":     hostPolicy,
		"a default":  strings.Replace(strict, "**.denied.test", "**.other.test", 1),
		"both":       strict,
		"every name": strings.Replace(hostPolicy, `"**.denied.test"`, `"**"`, 1),
	} {
		t.Run(text, func(t *testing.T) {
			l := newHostLab(t)
			l.publish(policy)
			if reply := l.asks("192.0.2.250", firstHost, "a.denied.test"); len(reply.Answer) > 0 {
				t.Fatalf("without a failsafe: %v", data(reply.Answer))
			}
			l.publish(policy, name)
			for range 3 {
				reply := l.asks("192.0.2.250", firstHost, "a.denied.test")
				if got := data(reply.Answer); reply.Rcode != dns.RcodeSuccess || len(got) != 1 || !strings.HasSuffix(got[0], "192.0.2.1") {
					t.Errorf("%s %q", dns.RcodeToString[reply.Rcode], got)
				}
			}
			l.publish(policy)
			if reply := l.asks("192.0.2.250", firstHost, "a.denied.test"); len(reply.Answer) > 0 {
				t.Errorf("the failsafe is gone: %v", data(reply.Answer))
			}
		})
	}
}
