package proxy

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func came(arrived <-chan struct{}) bool {
	select {
	case <-arrived:
		return true
	default:
		return false
	}
}

// TestProbe: a query for a pending name arrives from any source at any rate, and is in no
// counter.
func TestProbe(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 1, 1
	l.use(&config, l.up)
	at := l.listen()
	before := l.s.Stats()
	for _, from := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.77"} { // the last is no pod
		c := client(t, "udp", from, at)
		probe, arrived, done := l.s.ExpectProbe()
		fatal.If(t, c.WriteMsg(newQuery(probe, dns.TypeAAAA)))
		fatal.Await(t, "the probe does not arrive", func() bool { return came(arrived) })
		done()
		done()
	}
	diff.Equal(t, before, l.s.Stats(), "it counts")
}

// TestProbeIsNotAnswered: the first reply is that of the query after it.
func TestProbeIsNotAnswered(t *testing.T) {
	l := newLab(t, labTable)
	at := l.listen()
	c := client(t, "udp", "127.0.0.2", at)
	probe, arrived, done := l.s.ExpectProbe()
	defer done()
	fatal.If(t, c.WriteMsg(newQuery(probe, dns.TypeA)))
	if r := exchange(t, c, newQuery("www.example.org", dns.TypeA)); r.Rcode != dns.RcodeSuccess || r.Question[0].Name != "www.example.org." {
		t.Errorf("the first reply: %v", r)
	}
	if !came(arrived) {
		t.Error("it did not arrive")
	}
}
