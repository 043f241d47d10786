package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestBusyIsNotHung: there is always a query under way, of at most two seconds.
func TestBusyIsNotHung(t *testing.T) {
	var u underWay
	var eras []uint32
	for sec := range 200 {
		if eras = append(eras, u.begin()); len(eras) > 2 {
			u.end(eras[0])
			eras = eras[1:]
		}
		if u.hung(time.Duration(sec)*time.Second, 10*time.Second) {
			t.Fatalf("hung at %d s", sec)
		}
	}
}

// TestHungQueryIsNoticed: one query that does not end is enough, however many
// others do, and not before its time.
func TestHungQueryIsNoticed(t *testing.T) {
	const most = 10 * time.Second
	for began := range 40 {
		var u underWay
		var hung uint32
		noticed := -1
		for sec := range 80 {
			if sec == began {
				hung = u.begin()
			}
			other := u.begin()
			if u.hung(time.Duration(sec)*time.Second, most) && noticed < 0 {
				noticed = sec
			}
			u.end(other)
		}
		if after := noticed - began; noticed < 0 || after <= 10 || after > 22 {
			t.Errorf("begun at %d s, noticed at %d s", began, noticed)
		}
		u.end(hung)
		if u.hung(81*time.Second, most) || u.hung(82*time.Second, most) {
			t.Error("the query ended, and the proxy calls itself hung")
		}
	}
}

func TestClockThatGoesBack(t *testing.T) {
	var u underWay
	u.begin()
	for _, now := range []time.Duration{time.Hour, time.Minute, time.Minute + time.Second} {
		if u.hung(now, 10*time.Second) {
			t.Errorf("hung at %v", now)
		}
	}
}

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
	if err := c.WriteMsg(newQuery("slow.test", dns.TypeA)); err != nil {
		t.Fatal(err)
	}
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
