package proxy

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestParkedQueriesAreBounded: of one source, and of all; more get SERVFAIL at once, and in
// a flood not even that.
func TestParkedQueriesAreBounded(t *testing.T) {
	l, clock := newParkLab(t)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 10, 5
	l.use(&config, l.up)
	at := l.listen()
	one, two := client(t, "udp", "127.0.0.4", at), client(t, "tcp", "127.0.0.6", at)
	for range parkedQueries.Each + 7 { // retransmissions, as far as the proxy can tell
		put(t, one, newQuery("www.example.org", dns.TypeA))
	}
	for range 5 {
		wantCode(t, dns.RcodeServerFailure, got(t, one), "beyond the bound")
	}
	fatal.Await(t, "no silence", func() bool { return l.s.Stats().RateSilenced == 2 })
	if s := l.s.Stats(); s.Parked != uint64(parkedQueries.Each) || s.ParkFailed != 7 || l.parkedNow() != parkedQueries.Each {
		t.Errorf("stats %+v, %d wait", s, l.parkedNow())
	}
	put(t, two, newQuery("other.test", dns.TypeA)) // another source has room
	l.awaitParked(parkedQueries.Each + 1)

	l.s.parked.mu.Lock()
	l.s.parked.all += parkedQueries.All
	l.s.parked.mu.Unlock()
	put(t, two, newQuery("other.test", dns.TypeA))
	wantCode(t, dns.RcodeServerFailure, got(t, two), "beyond the bound of all")
	l.s.parked.mu.Lock()
	l.s.parked.all -= parkedQueries.All
	l.s.parked.mu.Unlock()

	l.s.Publish(compiled(t, labPolicies, without("free")))
	for range parkedQueries.Each {
		if r := got(t, one); len(r.Answer) != 3 {
			t.Fatalf("%v", r)
		}
	}
	clock.end()
	if r := got(t, two); r.Rcode != dns.RcodeServerFailure || l.parkedNow() != 0 {
		t.Errorf("%v, %d wait", r, l.parkedNow())
	}
}

// TestResumedQueriesAreLimited: parked queries then count among the pod's.
func TestResumedQueriesAreLimited(t *testing.T) {
	l, _ := newParkLab(t)
	config := *l.s.setup.Load().config
	config.Limits.QueriesPerPod = 2
	l.use(&config, l.up)
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	c := client(t, "udp", "127.0.0.6", at)
	for _, name := range []string{"slow1.test", "slow2.test", "slow3.test"} { // no query joins another
		put(t, c, newQuery(name, dns.TypeA))
	}
	l.awaitParked(3)
	l.s.Publish(compiled(t, labPolicies, labPods))
	if r := got(t, c); r.Rcode != dns.RcodeServerFailure || l.s.Stats().ShedPod != 1 {
		t.Errorf("%v", r)
	}
	<-h.entered
	<-h.entered
}

// TestConnectionsOfUnidentifiedPodsHaveSeparateLimits: unknown sources cannot use them
// up.
func TestConnectionsOfUnidentifiedPodsHaveSeparateLimits(t *testing.T) {
	l, _ := newParkLab(t)
	config := *l.s.setup.Load().config
	config.Limits.ConnectionsPerPod = 1
	l.use(&config, l.up)
	at := l.listen()
	l.s.clients.Connect(l.s.clients.Unknown(), &config.Limits, false)
	c := client(t, "tcp", "127.0.0.4", at)
	put(t, c, newQuery("www.example.org", dns.TypeA))
	l.awaitParked(1)
	l.s.Publish(compiled(t, labPolicies, labPods))
	wantAnswer(t, 3, got(t, c))
	if _, err := client(t, "tcp", "127.0.0.4", at).Read(make([]byte, 1)); err == nil {
		t.Error("a second connection of the pod is served")
	}
}
