package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNamesOfFailsafesAreAnswered: no rule, no default and no limit keeps a node from the addresses of a
// name of its failsafes. Other names are refused as before.
func TestNamesOfFailsafesAreAnswered(t *testing.T) {
	name, err := fqdn.ParseName("a.denied.test")
	fatal.If(t, err)
	strict := strings.Replace(hostPolicy, "  egress:", "  dns: {denied: Refuse, unmatched: NXDomain, types: [AAAA], maxLabels: 1, maxQueryRate: 1}\n  egress:", 1)
	for text, spec := range map[string]string{
		"a rule":     hostPolicy,
		"a default":  strings.Replace(strict, "**.denied.test", "**.other.test", 1),
		"both":       strict,
		"every name": strings.Replace(hostPolicy, `"**.denied.test"`, `"**"`, 1),
	} {
		t.Run(text, func(t *testing.T) {
			l := newHostLab(t)
			l.publish(spec)
			if reply := l.asks("192.0.2.250", firstHost, "a.denied.test"); len(reply.Answer) > 0 {
				t.Fatalf("without a failsafe: %v", data(reply.Answer))
			}
			l.publish(spec, name)
			for range 3 {
				reply := l.asks("192.0.2.250", firstHost, "a.denied.test")
				if got := data(reply.Answer); reply.Rcode != dns.RcodeSuccess || len(got) != 1 || !strings.HasSuffix(got[0], "192.0.2.1") {
					t.Errorf("%s %q", dns.RcodeToString[reply.Rcode], got)
				}
			}
			l.publish(spec)
			if reply := l.asks("192.0.2.250", firstHost, "a.denied.test"); len(reply.Answer) > 0 {
				t.Errorf("the failsafe is gone: %v", data(reply.Answer))
			}
		})
	}
}

// TestAnswersForFailsafesWait: an answer for a name of a failsafe leaves after its addresses were learned, also
// from the cache; others do not wait.
func TestAnswersForFailsafesWait(t *testing.T) {
	name, err := fqdn.ParseName("www.example.org")
	fatal.If(t, err)
	l := newHostLab(t)
	l.publish(hostPolicy, name)
	learned, pending := make(chan []netip.Addr, 1), make(chan func(), 1)
	l.s.learn = func(n fqdn.Name, addrs []netip.Addr, then func()) {
		if n != name {
			t.Errorf("learned %s", n)
		}
		learned <- addrs
		pending <- then
	}
	for range 2 {
		replies := make(chan *dns.Msg, 1)
		go func() { replies <- l.asks("192.0.2.250", firstHost, "www.example.org") }()
		if got := <-learned; !slices.Equal(got, addrsOf("192.0.2.1")) {
			t.Errorf("learned %v", got)
		}
		select {
		case reply := <-replies:
			t.Errorf("answered before: %q", data(reply.Answer))
		case <-time.After(50 * time.Millisecond):
		}
		(<-pending)()
		if got := data((<-replies).Answer); len(got) != 1 || !strings.HasSuffix(got[0], "192.0.2.1") {
			t.Errorf("answered %q", got)
		}
		l.s.hosts.all[firstHost].cache.DropReplies(map[*policy.View]bool{l.s.snapshot.Load().Node(): true})
	}
	l.asks("192.0.2.250", firstHost, "other.test")
}
