package proxy

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSwappingUnderLoad: configurations, snapshots and addresses change while
// queries run, and every query is answered.
func TestSwappingUnderLoad(t *testing.T) {
	l := newLab(t, nil)
	one, two := startScript(t, honest("192.0.2.1")), startScript(t, honest("192.0.2.2"))
	l.live(zoneOf(one))
	at := l.listen()
	stop := make(chan struct{})
	var swaps, asks sync.WaitGroup
	swaps.Go(func() {
		snaps := []string{labPolicies, labPolicies + "\n---\nmetadata: {name: more, namespace: shop}\nspec: {podSelector: {}, egress: [{matches: [{name: more.test}]}]}"}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c := *l.s.setup.Load().config
			c.Zones = nil
			for _, u := range []*scripted{one, two}[i%2:] {
				z := zoneOf(u)
				if len(c.Zones) == 0 {
					c.Zones = append(c.Zones, z)
				}
			}
			l.s.Configure(&c)
			l.s.SetCluster(Cluster{Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.250")}})
			l.s.Publish(compiled(t, snaps[i%2], labPods))
			if err := l.s.Listen([]netip.AddrPort{loopback, netip.MustParseAddrPort("127.0.0.9:0")}[:1+i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for _, network := range []string{"udp", "tcp"} {
		c := client(t, network, "127.0.0.2", at)
		asks.Go(func() {
			for range 150 {
				l.s.ForgetWarmUps()
				m := newQuery("www.example.org", dns.TypeA)
				if c.WriteMsg(m) != nil {
					t.Error("not sent")
					return
				}
				r, err := c.ReadMsg()
				if err != nil || r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 {
					t.Errorf("%s: %v, %v", network, r, err)
					return
				}
			}
		})
	}
	asks.Wait()
	close(stop)
	swaps.Wait()
}

// TestSelfQueryIsNotFooled: only the right text in a reply with its id counts.
func TestSelfQueryIsNotFooled(t *testing.T) {
	const alive = "alive.namegate.invalid. 0 IN TXT "
	for name, tt := range map[string]struct {
		packets script
		want    error // nil is alive
	}{
		"the right text": {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+aliveText)} }, nil},
		"another text":   {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil, alive+"x")} }, errNotServing},
		"no record":      {func(q *dns.Msg, _ bool) [][]byte { return [][]byte{says(q, nil)} }, errNotServing},
		"SERVFAIL":       {rcodeScript(dns.RcodeServerFailure), errNotServing},
		"another id": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+aliveText)}
		}, context.DeadlineExceeded},
		"another id, then the right text": {func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, alive+"x"), says(q, nil, alive+aliveText)}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			up := startScript(t, tt.packets)
			patience := time.Minute
			if errors.Is(tt.want, context.DeadlineExceeded) {
				patience = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := l.s.SelfQuery(ctx, up.Addr); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}
