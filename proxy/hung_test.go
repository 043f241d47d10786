package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestHungProxyDoesNotCallItselfAlive: with one query that hangs the self-query,
// asked each second, gets no answer any more; others have been answered all along.
func TestHungProxyDoesNotCallItselfAlive(t *testing.T) {
	l := newLab(t, labTable)
	var clock atomic.Int64
	l.s.now = func() time.Time { return noon.Add(time.Duration(clock.Load())) }
	h := l.holding()
	at := l.listen()
	t.Cleanup(h.release)
	c := client(t, "udp", "127.0.0.2", at)
	fatal.If(t, c.WriteMsg(newQuery("slow.test", dns.TypeA)))
	<-h.entered
	self := func(most time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		return l.s.SelfQuery(ctx, at)
	}
	limit := longest(l.s.setup.Load().config)
	for now := time.Duration(0); now <= limit; now += time.Second {
		clock.Store(int64(now))
		if err := self(time.Minute); err != nil {
			t.Fatalf("at %v busy is taken for hung: %v", now, err)
		}
		exchange(t, client(t, "udp", "127.0.0.3", at), newQuery("www.example.org", dns.TypeA))
	}
	for range 3 {
		clock.Add(int64(limit))
		l.s.stuck()
	}
	if err := self(200 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hung proxy says %v", err)
	}
	h.release()
	if _, err := c.ReadMsg(); err != nil {
		t.Fatal(err)
	}
	if err := self(time.Minute); err != nil {
		t.Errorf("after the end of the query: %v", err)
	}
}

func TestLongestCoversTheConfiguration(t *testing.T) {
	c := *newLab(t, nil).s.setup.Load().config
	before := longest(&c)
	c.GrantTimeout += time.Second
	c.Zones = append(c.Zones, c.Zones[0])
	c.Zones[1].Deadline += time.Second
	if got := longest(&c) - before; got != 3*time.Second {
		t.Errorf("longer by %v", got)
	}
}
