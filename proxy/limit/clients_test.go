package limit

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
)

var (
	one = netip.MustParseAddr("10.1.0.2")
	two = netip.MustParseAddr("10.1.0.3")
)

func TestAdmitAndRelease(t *testing.T) {
	var c Clients
	limits := &corefile.Limits{Queries: 3, QueriesPerPod: 2}
	var slots []Slot
	for i, tt := range []struct {
		of     *Client
		exempt bool
		want   Result
	}{
		{c.Of(one), false, Admitted}, {c.Of(one), false, Admitted}, {c.Of(one), false, ClientFull},
		{c.Of(two), false, Admitted}, {c.Of(two), false, AllFull}, {c.Unknown(), true, Admitted},
	} {
		s, got := c.Admit(tt.of, limits, tt.exempt)
		if got != tt.want || s.Taken() != (got == Admitted) {
			t.Errorf("query %d: %v, want %v", i, got, tt.want)
		}
		if s.Taken() {
			slots = append(slots, s)
		}
	}
	if c.InFlight() != 4 || c.taken() != 8 {
		t.Errorf("%d in flight, %d held", c.InFlight(), c.taken())
	}
	for _, s := range slots {
		c.Release(s)
	}
	if c.InFlight() != 0 || c.taken() != 0 {
		t.Errorf("%d in flight, %d held after the last", c.InFlight(), c.taken())
	}
}

func TestConnect(t *testing.T) {
	var c Clients
	limits := &corefile.Limits{Connections: 3, ConnectionsPerPod: 2}
	for i, tt := range []struct {
		of           *Client
		exempt, want bool
	}{
		{c.Of(one), false, true}, {c.Of(one), false, true}, {c.Of(one), false, false},
		{c.Of(two), false, false}, {c.Of(two), true, true},
	} {
		diff.Equal(t, tt.want, c.Connect(tt.of, limits, tt.exempt), "connection", i)
		if !tt.want {
			c.Disconnect(tt.of)
		}
		if i == 2 {
			c.Connect(c.Unknown(), limits, false)
		}
	}
	diff.Equal(t, 4, c.Connections(), "connections")
}

func TestClientsAreKeptWhileInUse(t *testing.T) {
	var c Clients
	if c.Of(one) != c.Of(one) || c.Of(one) == c.Of(two) || c.Of(two) == c.Unknown() {
		t.Error("clients are not told apart")
	}
	limits := &corefile.Limits{Queries: 9, QueriesPerPod: 9, Connections: 9, ConnectionsPerPod: 9}
	three := netip.MustParseAddr("10.1.0.4")
	slot, _ := c.Admit(c.Of(one), limits, false)
	c.Connect(c.Of(two), limits, false)
	c.Of(three)
	sweep := func(known bool, want int) {
		t.Helper()
		if c.Sweep(func(netip.Addr) bool { return known }); len(c.byAddr) != want {
			t.Errorf("%d clients, want %d", len(c.byAddr), want)
		}
	}
	sweep(true, 3)
	sweep(false, 2)
	c.Release(slot)
	c.Disconnect(c.Of(two))
	sweep(false, 0)
}

// TestClientsLeaveRoom: clients that have all they can leave room for others, in queries and
// connections.
func TestClientsLeaveRoom(t *testing.T) {
	limits := &corefile.Limits{Queries: 4096, QueriesPerPod: 512, Connections: 1024, ConnectionsPerPod: 64}
	var c Clients
	of := func(i int) *Client { return c.Of(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})) }
	for i := range 100 {
		for range limits.QueriesPerPod {
			c.Admit(of(i), limits, false)
		}
		for range limits.ConnectionsPerPod {
			if !c.Connect(of(i), limits, false) {
				c.Disconnect(of(i))
			}
		}
	}
	late := of(200)
	for i := range 16 {
		if _, result := c.Admit(late, limits, false); result != Admitted {
			t.Errorf("query %d: %v", i, result)
		}
		if !c.Connect(late, limits, false) {
			t.Errorf("connection %d is refused", i)
		}
	}
	if c.InFlight() > 4096+100*16 || c.Connections() > 1024+100*16 {
		t.Errorf("%d queries in flight, %d connections", c.InFlight(), c.Connections())
	}
}

// taken returns what clients and the watchdog count of queries, each on its own: twice
// InFlight, unless a slot is lost.
func (c *Clients) taken() (n int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, of := range c.byAddr {
		n += int64(of.queries.Load())
	}
	return n + int64(c.unknown.queries.Load()) + c.Watchdog.counts[0].Load() + c.Watchdog.counts[1].Load()
}

func TestTokenBucket(t *testing.T) {
	var b TokenBucket
	taken := func(now time.Duration, most int) (n int) {
		for range most {
			if b.Take(now, 100, 5) {
				n++
			}
		}
		return n
	}
	for i, tt := range []struct {
		now  time.Duration
		want int
	}{
		{0, 5}, {0, 0}, {9 * time.Millisecond, 0}, {10 * time.Millisecond, 1}, {30 * time.Millisecond, 2},
		{time.Hour, 5}, {time.Hour, 0}, {0, 5}, // the clock went back: not shut for an hour
	} {
		diff.Equal(t, tt.want, taken(tt.now, 20), "step", i, "at", tt.now, "taken")
	}
}

// TestTokenBucketLikeItsTwin: a bucket that counts tokens the slow way.
func TestTokenBucketLikeItsTwin(t *testing.T) {
	for range 50 {
		rate, burst := 1<<rand.IntN(10), 1+rand.IntN(20)
		each := time.Second / time.Duration(rate)
		var b TokenBucket
		var now, last time.Duration
		tokens := float64(burst)
		for range 500 {
			now += each * time.Duration(rand.IntN(5)) / 2
			tokens = min(float64(burst), tokens+float64(now-last)/float64(each))
			last = now
			want := tokens >= 1
			if want {
				tokens--
			}
			diff.MustEqual(t, want, b.Take(now, rate, burst), "rate", rate, "burst", burst, "at", now)
		}
	}
}

// TestBusyIsNotHung: there is always a query under way, of at most two seconds.
func TestBusyIsNotHung(t *testing.T) {
	var w Watchdog
	var epochs []uint32
	for sec := range 200 {
		if epochs = append(epochs, w.Begin()); len(epochs) > 2 {
			w.End(epochs[0])
			epochs = epochs[1:]
		}
		if w.Hung(time.Duration(sec)*time.Second, 10*time.Second) {
			t.Fatalf("hung at %d s", sec)
		}
	}
}

// TestHungQueryIsNoticed: one query that does not end is enough, however many
// others do, and not before its time.
func TestHungQueryIsNoticed(t *testing.T) {
	const most = 10 * time.Second
	for began := range 40 {
		var w Watchdog
		var hung uint32
		noticed := -1
		for sec := range 80 {
			if sec == began {
				hung = w.Begin()
			}
			other := w.Begin()
			if w.Hung(time.Duration(sec)*time.Second, most) && noticed < 0 {
				noticed = sec
			}
			w.End(other)
		}
		if after := noticed - began; noticed < 0 || after <= 10 || after > 22 {
			t.Errorf("begun at %d s, noticed at %d s", began, noticed)
		}
		w.End(hung)
		if w.Hung(81*time.Second, most) || w.Hung(82*time.Second, most) {
			t.Error("the query ended, and the proxy calls itself hung")
		}
	}
}

func TestClockSetBack(t *testing.T) {
	var w Watchdog
	w.Begin()
	for _, now := range []time.Duration{time.Hour, time.Minute, time.Minute + time.Second} {
		if w.Hung(now, 10*time.Second) {
			t.Errorf("hung at %v", now)
		}
	}
}
