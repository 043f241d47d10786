package proxy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/wire"
)

// wantAccounts recomputes what the cache says it takes.
func wantAccounts(t testing.TB, c *cache) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		var bytes int64
		telling := 0
		for _, e := range s.lru.Values() {
			size := int64(entryBytes + len(e.key) + len(e.wire))
			told := int64(0)
			for _, r := range e.replays {
				told += r.size()
				if r.config != s.config {
					t.Errorf("shard %d has a replay of another configuration", i)
				}
			}
			if told != e.told {
				t.Errorf("the replays of %v take %d bytes, said are %d", e.query.Name, told, e.told)
			}
			if size += told + int64(len(e.askers))*askerBytes; size != e.size {
				t.Errorf("%v takes %d bytes, said are %d", e.query.Name, size, e.size)
			}
			bytes += size
			if len(e.replays) > 0 {
				telling++
				if !s.telling[e] {
					t.Errorf("%v has replays and is not known for them", e.query.Name)
				}
			}
		}
		if bytes != s.bytes {
			t.Errorf("shard %d takes %d bytes, said are %d", i, bytes, s.bytes)
		}
		if bytes > s.most {
			t.Errorf("shard %d takes %d bytes of %d", i, bytes, s.most)
		}
		if telling != len(s.telling) {
			t.Errorf("shard %d has %d entries with replays, said are %d", i, telling, len(s.telling))
		}
		s.mu.Unlock()
	}
}

// keptAnswer is an entry that says nothing, of so many bytes.
func keptAnswer(t testing.TB, qname string, qtype uint16, bytes int) *entry {
	t.Helper()
	return &entry{query: wire.Query{Question: wire.Question{Name: name(t, qname), Type: qtype, Class: dns.ClassINET}}, wire: make([]byte, bytes), end: time.Hour, gone: time.Hour}
}

// anyView takes every view for one in force.
func anyView(*policy.View) bool { return true }

// TestAccountsNeverDrift: whatever is put, forgotten, given again and asked for, in
// and after its time in the cache.
func TestAccountsNeverDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	views := make([]*policy.View, 700)
	for i := range views {
		views[i] = new(policy.View)
	}
	configs := []*corefile.Config{new(corefile.Config), new(corefile.Config)}
	for _, bytes := range []int64{1 << 20, 8 << 20} {
		c := newCache(160, bytes)
		var held []*entry // also what was evicted
		evicted := 0
		for i := range 60_000 {
			e := keptAnswer(t, "n"+itoa(r.IntN(400))+".test", []uint16{dns.TypeA, dns.TypeAAAA}[r.IntN(2)], 50+r.IntN(400))
			if r.IntN(200) == 0 {
				e.wire = make([]byte, r.IntN(140_000))
			}
			e.nowhere = r.IntN(10) == 0
			if len(held) > 0 && r.IntN(4) > 0 {
				e = held[r.IntN(len(held))]
			}
			switch n := r.IntN(100); {
			case n < 20 && !slices.Contains(held, e):
				if c.put(e); len(held) < 300 {
					held = append(held, e)
				} else {
					held[r.IntN(300)] = e
				}
			case n < 25:
				c.replaced(e)
			case n < 40:
				c.asked(e, policy.PodRef{Name: itoa(r.IntN(600))})
			case n < 41:
				c.dropReplies(map[*policy.View]bool{views[r.IntN(len(views))]: true, views[r.IntN(len(views))]: true})
			case n < 98:
				hot := held
				if len(held) > 5 {
					hot = held[:5]
				}
				if r.IntN(3) > 0 && len(hot) > 0 {
					e = hot[r.IntN(len(hot))]
				}
				grants := []policy.Grant{{Addrs: make([]netip.Addr, r.IntN(64))}}
				said := rebind.Verdicts{Addrs: make([]rebind.Verdict, r.IntN(8))}
				c.addReplay(e, replayKey{view: views[r.IntN(len(views))]}, &replay{config: configs[i/20_000%2], judged: said, wire: make([]byte, 30+r.IntN(500)), grants: grants}, anyView)
			default:
				c.get(e.query, 0)
			}
			if i%500 == 0 {
				wantAccounts(t, c)
			}
			if keptAt(c, e.query) != e {
				evicted++
			}
		}
		wantAccounts(t, c)
		for _, e := range held {
			c.replaced(e)
		}
		for i := range c.shards {
			c.shards[i].lru.Purge()
		}
		if entries, bytes := c.usage(); entries != 0 || bytes != 0 || evicted < 1000 {
			t.Errorf("%d entries and %d bytes are left, %d were evicted", entries, bytes, evicted)
		}
		if t.Failed() {
			return
		}
	}
}

func TestCacheIsBoundedByEntriesAndBytes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries int
		bytes   int64
		size    int
	}{{"entries", 64, 1 << 30, 100}, {"bytes", 1_000_000, 1 << 20, 2000}} {
		c := newCache(tt.entries, tt.bytes)
		for i := range 5000 {
			c.put(keptAnswer(t, itoa(i)+".test", dns.TypeA, tt.size))
			if entries, bytes := c.usage(); entries > tt.entries || bytes > tt.bytes {
				t.Fatalf("%s: %d entries of %d, %d bytes of %d", tt.name, entries, tt.entries, bytes, tt.bytes)
			}
		}
		if entries, bytes := c.usage(); entries < tt.entries/2 && bytes < tt.bytes/2 {
			t.Errorf("%s: only %d entries and %d bytes are kept", tt.name, entries, bytes)
		}
		wantAccounts(t, c)
	}
}

func TestAnswerThatDoesNotFitLeavesTheOthers(t *testing.T) {
	c := newCache(1000, 1<<20)
	for i := range 100 {
		c.put(keptAnswer(t, itoa(i)+".test", dns.TypeA, 100))
	}
	c.put(keptAnswer(t, "large.test", dns.TypeA, 1<<16))
	if entries, _ := c.usage(); entries != 100 {
		t.Errorf("%d are left of 100", entries)
	}
}

// TestLeastRecentlyUsedGoesFirst, whichever way it was used.
func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	use := map[string]func(*cache, *entry){
		"long":  func(c *cache, e *entry) { c.get(e.query, 0) },
		"quick": func(c *cache, e *entry) { c.replay(quickOf(t, e), replayKey{}, 0) },
	}
	for what, use := range use {
		c := newCache(64, 1<<30)
		kept := keptAnswer(t, "kept.test", dns.TypeA, 10)
		idle := keptAnswer(t, "idle.test", dns.TypeA, 10)
		c.put(idle)
		c.put(kept)
		for i := range 2000 {
			use(c, kept)
			c.put(keptAnswer(t, itoa(i)+".test", dns.TypeA, 10))
		}
		if keptAt(c, kept.query) != kept || keptAt(c, idle.query) != nil {
			t.Errorf("%s: used %v, idle %v", what, keptAt(c, kept.query) != nil, keptAt(c, idle.query) != nil)
		}
	}
}

// keptAt returns what is kept under the ask's own key.
func keptAt(c *cache, a wire.Query) *entry {
	key := a.AppendKey(nil)
	return c.shard(key).find(key)
}

func quickOf(t testing.TB, e *entry) *wire.QueryView {
	t.Helper()
	q, ok := wire.ParseQuery(e.query.PackWithoutEDNS(1))
	if !ok {
		t.Fatal("not plain")
	}
	return &q
}

// TestAnswerRefutesWhatWasKept: a name that exists is not kept as one that does
// not, and the other way round for the type that was asked.
func TestAnswerRefutesWhatWasKept(t *testing.T) {
	c := newCache(1000, 1<<20)
	nowhere := keptAnswer(t, "one.test", dns.TypeTXT, 10)
	nowhere.nowhere = true
	a := keptAnswer(t, "one.test", dns.TypeA, 10)
	aaaa := a.query
	aaaa.Type = dns.TypeAAAA
	c.put(nowhere)
	if c.get(a.query, 0) != nowhere || c.get(aaaa, 0) != nowhere {
		t.Error("NXDOMAIN does not hold for every type")
	}
	c.put(a)
	if c.get(a.query, 0) != a || c.get(aaaa, 0) != nil {
		t.Error("the name exists, and does not")
	}
	again := keptAnswer(t, "one.test", dns.TypeA, 10)
	again.nowhere = true
	c.put(again)
	if c.get(a.query, 0) != again || c.get(aaaa, 0) != again {
		t.Error("the name is gone, and is not")
	}
	wantAccounts(t, c)
}

// TestFreshDenialGoesBeforeWhatIsOver: an answer that is only good for an outage
// does not hide that the name is gone.
func TestFreshDenialGoesBeforeWhatIsOver(t *testing.T) {
	c := newCache(1000, 1<<20)
	a := keptAnswer(t, "one.test", dns.TypeA, 10)
	a.end, a.gone = 10*time.Second, time.Hour
	gone := keptAnswer(t, "one.test", dns.TypeTXT, 10)
	gone.nowhere, gone.born, gone.end, gone.gone = true, 5*time.Second, 30*time.Second, 40*time.Second
	c.put(a)
	c.put(gone)
	for _, tt := range []struct {
		now  time.Duration
		want *entry
	}{{6 * time.Second, a}, {10 * time.Second, gone}, {29 * time.Second, gone}, {35 * time.Second, gone}, {50 * time.Second, a}} {
		if got := c.get(a.query, tt.now); got != tt.want {
			t.Errorf("at %v: the denial %v", tt.now, got == gone)
		}
	}
}

// TestReplaysOfOneAnswerLeaveRoomForOthers: however many pods ask, the answer
// stays, and so do others.
func TestReplaysOfOneAnswerLeaveRoomForOthers(t *testing.T) {
	c := newCache(100_000, 1<<20)
	hot := keptAnswer(t, "hot.test", dns.TypeA, 100)
	for i := range 400 {
		c.put(keptAnswer(t, itoa(i)+".test", dns.TypeA, 100))
	}
	c.put(hot)
	before, _ := c.usage()
	for range 5000 {
		c.addReplay(hot, replayKey{view: new(policy.View)}, &replay{wire: make([]byte, 300)}, anyView)
		if len(hot.replays) == 0 {
			t.Fatal("nothing was remembered")
		}
	}
	if after, _ := c.usage(); keptAt(c, hot.query) != hot || after < before*9/10 {
		t.Errorf("%d of %d answers are left, the hot one: %v", after, before, keptAt(c, hot.query) == hot)
	}
	wantAccounts(t, c)
}

func TestCacheUnderManyGoroutines(t *testing.T) {
	c := newCache(64, 1<<20)
	names := make([]*entry, 100)
	for i := range names {
		names[i] = keptAnswer(t, itoa(i)+".test", dns.TypeA, 100)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 3000 {
				of := names[r.IntN(len(names))]
				fresh := &entry{query: of.query, wire: of.wire, end: time.Hour, nowhere: r.IntN(5) == 0}
				switch e := c.get(of.query, 0); {
				case e == nil || r.IntN(10) == 0:
					c.put(fresh)
				case r.IntN(20) == 0:
					c.replaced(e)
				case r.IntN(2) == 0:
					c.asked(e, policy.PodRef{Name: itoa(r.IntN(10))})
				default:
					c.addReplay(e, replayKey{qtype: uint16(r.IntN(10))}, &replay{wire: make([]byte, r.IntN(200))}, anyView)
				}
			}
		})
	}
	wg.Wait()
	wantAccounts(t, c)
}
