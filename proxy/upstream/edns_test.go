package upstream

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// ednsFirewall is an upstream behind a firewall that drops so many queries with EDNS, which it
// counts, and none without.
func ednsFirewall(t *testing.T, drops int64) (up *upstreamtest.Server, dropped *atomic.Int64) {
	dropped = new(atomic.Int64)
	return upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if q.IsEdns0() != nil && dropped.Load() < drops {
			dropped.Add(1)
			return nil
		}
		return upstreamtest.Honest("192.0.2.1")(q, tcp)
	}), dropped
}

// TestUpstreamThatDropsEDNS: queries in flight are asked again without EDNS long before their
// try ends, with DO and options too. Later ones are asked without EDNS at once, for a while.
func TestUpstreamThatDropsEDNS(t *testing.T) {
	up, dropped := ednsFirewall(t, 1<<40)
	z := upstreamtest.Zone(up)
	z.Timeout, z.Deadline = 5*time.Minute, 10*time.Minute
	f, _ := newForward(t, z)
	u := f.routes.Load().first[0]
	began, answered := time.Now(), make(chan error)
	for i := range 4 {
		go func() {
			q := askFor(t, fmt.Sprintf("n%d.test", i))
			q.Flags |= wire.DO.If(i == 1)
			q.Options = map[int]string{2: "\xfd\xe9\x00\x00"}[i]
			_, err := f.resolve(q)
			answered <- err
		}()
	}
	for range 4 {
		fatal.If(t, <-answered)
	}
	if took := time.Since(began); took > time.Minute || u.down(2) {
		t.Errorf("took %v, is down: %t", took, u.down(2))
	}
	fatal.Await(t, "the probe does not end", func() bool { return !u.probing.Load() })
	before, sent := dropped.Load(), up.UDP.Load()
	for range 5 {
		answersWith(t, f, "192.0.2.1")
	}
	if dropped.Load() != before || up.UDP.Load() != sent+5 {
		t.Errorf("%d queries with EDNS, %d in all", dropped.Load()-before, up.UDP.Load()-sent)
	}
	u.plain.Store(int64(u.now())) // the while is over
	answersWith(t, f, "192.0.2.1")
	if dropped.Load() == before {
		t.Error("EDNS is never tried again")
	}
}

// TestLostPacketsEndNoEDNS: some lost queries with EDNS, beside others that are answered, say
// nothing about the upstream.
func TestLostPacketsEndNoEDNS(t *testing.T) {
	up, dropped := ednsFirewall(t, 3)
	f, _ := newForward(t, upstreamtest.Zone(up))
	u := f.routes.Load().first[0]
	answersWith(t, f, "192.0.2.1")
	fatal.Await(t, "the probe does not end", func() bool { return !u.probing.Load() })
	if dropped.Load() != 3 || u.isPlain() {
		t.Errorf("%d lost, asked without EDNS: %t", dropped.Load(), u.isPlain())
	}
}

// TestUpstreamThatRefusesEDNS with FORMERR is asked twice once, unless the reason may be a
// client's option.
func TestUpstreamThatRefusesEDNS(t *testing.T) {
	for options, want := range map[string]int64{"": 4, "\xfd\xe9\x00\x00": 6} {
		up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
			if q.IsEdns0() != nil {
				return upstreamtest.Rcode(dns.RcodeFormatError)(q, tcp)
			}
			return upstreamtest.Honest("192.0.2.1")(q, tcp)
		})
		f, _ := newForward(t, patient(up))
		for range 3 {
			q := askFor(t, "www.example.org")
			q.Options = options
			if got, err := f.resolve(q); err != nil || len(got.Msg.Answer) != 1 {
				t.Errorf("%v, %v", got.Msg, err)
			}
		}
		diff.Equal(t, want, up.UDP.Load(), "options", options, "times asked")
	}
}
