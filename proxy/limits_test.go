package proxy

import (
	"context"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestOnePodsFloodIsShed: beyond its rate a pod gets SERVFAIL, beyond that rate
// too it hears nothing; its neighbour and the proxy itself are answered.
func TestOnePodsFloodIsShed(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 10, 5
	l.use(&config, l.up)
	at := l.listen()
	for i, network := range []string{"udp", "tcp"} {
		from := []string{"127.0.0.2", "127.0.0.8"}[i]
		flood := client(t, network, from, at)
		for range 14 {
			fatal.If(t, flood.WriteMsg(newQuery("www.example.org", dns.TypeA)))
		}
		replies := map[int]int{}
		for range 10 {
			r, err := flood.ReadMsg()
			fatal.If(t, err)
			replies[r.Rcode]++
		}
		if replies[dns.RcodeSuccess] != 5 || replies[dns.RcodeServerFailure] != 5 {
			t.Errorf("%s: replies by code %v, want 5 answers and 5 SERVFAIL", network, replies)
		}
		fatal.Await(t, "the flood is not dropped", func() bool { return l.s.Stats().RateSilenced == uint64(4*(i+1)) })
	}
	if r := exchange(t, client(t, "udp", "127.0.0.3", at), newQuery("www.example.org", dns.TypeA)); r.Rcode != dns.RcodeSuccess {
		t.Errorf("the neighbour: %v", r)
	}
	for range 20 {
		if err := l.s.SelfQuery(context.Background(), at); err != nil {
			t.Fatalf("the proxy itself: %v", err)
		}
	}
	if s := l.s.Stats(); s.RateLimited != 18 || s.RateSilenced != 8 || s.ShedPod != 0 || s.Queries < 31 {
		t.Errorf("stats %+v", s)
	}
	paced := func() bool {
		_, rcode := l.s.newHandler(at.Addr()).meet(mustAddr("127.0.0.2"), l.s.elapsed())
		return rcode == dns.RcodeSuccess
	}
	begun := l.s.started
	l.s.started = begun.Add(-100 * time.Millisecond) // as if that had passed
	if !paced() || paced() {
		t.Error("after a tenth of a second it is not exactly one query more")
	}
}
