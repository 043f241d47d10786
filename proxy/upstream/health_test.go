package upstream

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// TestSlowNamesDoNotMarkUpstreamsDown: unanswered names, of a zone that a pod owns, do not mark a
// healthy upstream down for everyone.
func TestSlowNamesDoNotMarkUpstreamsDown(t *testing.T) {
	first := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if strings.HasPrefix(q.Question[0].Name, "slow") {
			return nil
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	z := upstreamtest.Zone(first, upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2")))
	f, stats := newForward(t, z)
	for i := range 4 {
		got, err := f.resolve(askFor(t, fmt.Sprintf("slow%d.evil.test", i)))
		if err != nil || got.From == first.Addr {
			t.Fatalf("slow name: from %v, %v", got.From, err)
		}
		answersWith(t, f, "192.0.2.1")
	}
	diff.Equal(t, 4, stats.Failures.Load(), "failures: one for each slow name")
	fatal.Await(t, "the probe does not end", func() bool { return !f.routes.Load().first[0].probing.Load() })
	diff.Equal(t, 0, f.routes.Load().first[0].fails.Load(), "failures of an upstream that answers probes")
}

func TestSilentUpstreamIsDown(t *testing.T) {
	var alive atomic.Bool
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if !alive.Load() {
			return nil
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	})
	f, _ := newForward(t, upstreamtest.Zone(up, upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2"))))
	u := f.routes.Load().first[0]
	u.failed(bounds{})
	if u.probing.Load() {
		t.Error("probed without a bound")
	}
	answersWith(t, f, "192.0.2.2")
	fatal.Await(t, "two probes went unanswered and it is not down", func() bool { return u.down(2) })
	if order := f.order(f.routes.Load(), nil); order[1] != u {
		t.Error("what is down is not asked last")
	}
	alive.Store(true)
	fatal.Await(t, "still down though it answers", func() bool { return !u.down(2) })
}

// TestTruncatedFailsOver: an upstream that cuts its answers and says nothing over
// TCP, as behind a firewall that drops it, does not take the whole deadline.
func TestTruncatedFailsOver(t *testing.T) {
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	first := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			<-gate
			return nil
		}
		return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true })}
	})
	good := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))
	z := patient(first, good)
	z.Timeout = 4 * time.Second // of which TCP has the half
	f, stats := newForward(t, z)
	answersWith(t, f, "192.0.2.1")
	if good.UDP.Load() != 1 || stats.TCP.Load() != 1 {
		t.Errorf("the second was asked %d times, TCP %d", good.UDP.Load(), stats.TCP.Load())
	}
}

// TestManyWrongRepliesEndInTCP: a flood of guesses does not delay a query for ever.
func TestManyWrongRepliesEndInTCP(t *testing.T) {
	for wrong, tcp := range map[int]uint64{maxWrong - 1: 0, maxWrong: 1} {
		up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
			if tcp {
				return upstreamtest.Honest("192.0.2.1")(q, true)
			}
			var all [][]byte
			for i := range wrong {
				all = append(all, upstreamtest.Says(q, func(r *dns.Msg) { r.Id += uint16(i + 1) }, q.Question[0].Name+" 60 IN A "+forged))
			}
			return append(all, upstreamtest.Honest("192.0.2.1")(q, false)...)
		})
		f, stats := newForward(t, patient(up))
		answersWith(t, f, "192.0.2.1")
		if stats.TCP.Load() != tcp || stats.WrongReplies.Load() != uint64(wrong) {
			t.Errorf("%d wrong: TCP %d, counted %d", wrong, stats.TCP.Load(), stats.WrongReplies.Load())
		}
	}
}

// TestUpstreamWithoutEDNS: it says FORMERR to an OPT record, with or without the
// question, and answers a query without.
func TestUpstreamWithoutEDNS(t *testing.T) {
	for name, refuse := range map[string]func(q *dns.Msg) []byte{
		"with the question": func(q *dns.Msg) []byte {
			return upstreamtest.Says(q, func(r *dns.Msg) { r.Rcode = dns.RcodeFormatError })
		},
		"a bare header": func(q *dns.Msg) []byte {
			return upstreamtest.Says(q, func(r *dns.Msg) { r.Rcode, r.Question = dns.RcodeFormatError, nil })
		},
	} {
		up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
			if q.IsEdns0() != nil {
				return [][]byte{refuse(q)}
			}
			if len(q.Extra) != 0 || !q.RecursionDesired {
				t.Errorf("%s: asked again with %v", name, q)
			}
			return upstreamtest.Honest("192.0.2.1")(q, tcp)
		})
		f, _ := newForward(t, patient(up))
		answersWith(t, f, "192.0.2.1")
		diff.Equal(t, 2, up.UDP.Load(), name, "queries")
	}
	// FORMERR with EDNS means that the query is malformed.
	up := upstreamtest.Start(t, func(q *dns.Msg, _ bool) [][]byte {
		return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Rcode = dns.RcodeFormatError; r.SetEdns0(wire.AdvertisedSize, false) })}
	})
	f, _ := newForward(t, patient(up))
	if got, err := f.resolve(askFor(t, "www.example.org")); err != nil || got.Msg.Rcode != dns.RcodeFormatError || up.UDP.Load() != 1 {
		t.Errorf("%v, %v, %d queries", got.Msg, err, up.UDP.Load())
	}
}

// forwardsOf is the forwards of a Corefile without Services.
func forwardsOf(t *testing.T, text string) (out []Forward) {
	t.Helper()
	c, err := corefile.Parse("Corefile", text)
	fatal.If(t, err)
	for i := range c.Zones {
		out = append(out, Forward{Zone: &c.Zones[i], First: c.Zones[i].To})
	}
	return out
}

// TestStatus counts zone by zone. An upstream is down once as many probes in a row have
// failed as the zone says.
func TestStatus(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	p.Configure(forwardsOf(t, ". {\n forward . 198.51.100.53 198.51.100.54\n}\ncorp.test {\n forward . 198.51.100.54 {\n max_fails 0\n }\n}"))
	want := func(what string, all ...Status) {
		t.Helper()
		diff.Error(t, all, p.Status(), what)
	}
	want("at first", Status{"corp.test", 1, 0}, Status{".", 2, 0})
	u := p.ups[netip.MustParseAddrPort("198.51.100.54:53")]
	u.fails.Store(1)
	want("one probe failed", Status{"corp.test", 1, 0}, Status{".", 2, 0})
	u.fails.Store(2)
	want("down", Status{"corp.test", 1, 0}, Status{".", 1, 1})
	u.answered(make([]byte, 12), u.now(), 1)
	want("up again", Status{"corp.test", 1, 0}, Status{".", 2, 0})
}

// TestConfigureKeepsUnchangedUpstreams: a zone and an upstream that are in the next configuration
// too are the same ones, and an upstream that is not is closed.
func TestConfigureKeepsUnchangedUpstreams(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	one, two := netip.MustParseAddrPort("198.51.100.53:53"), netip.MustParseAddrPort("198.51.100.54:53")
	both := forwardsOf(t, ". {\n forward . 198.51.100.53 198.51.100.54\n}\ncorp.test {\n forward . 198.51.100.54\n}")
	zones := p.Configure(both)
	corp, z, left, stays := zones[0], zones[1], p.ups[one], p.ups[two]
	if corp.name != policytest.Name("corp.test") || z.name != "" {
		t.Errorf("zones %v and %v", corp.name, z.name)
	}
	routes := z.routes.Load()
	if p.Configure(both); z.routes.Load() != routes {
		t.Error("nothing changed, and the routes are others")
	}
	zones = p.Configure(forwardsOf(t, ". {\n forward . 198.51.100.54\n}"))
	if !slices.Equal(zones, []*Zone{z}) || len(p.ups) != 1 || p.ups[two] != stays {
		t.Errorf("upstreams %v", p.ups)
	}
	if !left.gone() || stays.gone() {
		t.Errorf("closed: %v, %v", left.gone(), stays.gone())
	}
	diff.Equal(t, z.routes.Load(), corp.routes.Load(), "the routes of a zone that is gone: those of the zone that covers it")
}
