package cache

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/wiretest"
)

// wantAccounts computes the cache's accounts again.
func wantAccounts(t testing.TB, c *Cache) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var bytes int64
	withReplies, listed := 0, 0
	for e := c.used.next; e != &c.used; e = e.next {
		listed++
		if c.entries[keyOf(e.Query)] != e || e.next.prev != e {
			t.Errorf("%v is in the list of entries alone, or once more", e.Query.Name)
		}
		size := int64(entryBytes + len(e.Query.Name) + len(e.message))
		replies := int64(0)
		for _, own := range e.replies {
			for _, r := range own {
				replies += r.size()
				if r != nil && r.Config != c.config {
					t.Errorf("%v has a reply of another configuration", e.Query.Name)
				}
			}
		}
		if replies != e.replyBytes {
			t.Errorf("the replies of %v take %d bytes, said are %d", e.Query.Name, replies, e.replyBytes)
		}
		if size += replies + int64(len(e.clients))*clientBytes; size != e.size {
			t.Errorf("%v takes %d bytes, said are %d", e.Query.Name, size, e.size)
		}
		bytes += size
		if len(e.replies) > 0 {
			withReplies++
			if !c.withReplies[e] {
				t.Errorf("%v has replies and is not known for them", e.Query.Name)
			}
		}
	}
	if bytes != c.bytes || bytes > c.mostBytes {
		t.Errorf("the entries take %d bytes of %d, said are %d", bytes, c.mostBytes, c.bytes)
	}
	if withReplies != len(c.withReplies) || listed != len(c.entries) || listed > c.most {
		t.Errorf("%d entries of %d with replies, %d of %d entries are listed, at most %d", withReplies, len(c.withReplies), listed, len(c.entries), c.most)
	}
}

// keptAnswer is an entry that says nothing, of so many bytes.
func keptAnswer(t testing.TB, qname string, qtype uint16, bytes int) *Entry {
	t.Helper()
	return &Entry{Query: wire.Query{Question: wire.Question{Name: policytest.Name(qname), Type: qtype, Class: dns.ClassINET}}, message: make([]byte, bytes), expires: time.Hour, staleUntil: time.Hour}
}

// anyView takes every view for one in force.
func anyView(*policy.View) bool { return true }

// TestAccountsNeverDrift: whatever is put, removed, stored with a reply and asked for, in
// and after its time in the cache.
func TestAccountsNeverDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	views := make([]*policy.View, 700)
	for i := range views {
		views[i] = new(policy.View)
	}
	configs := []*corefile.Config{new(corefile.Config), new(corefile.Config)}
	for _, bytes := range []int64{1 << 20, 8 << 20} {
		c := New(160, bytes)
		var held []*Entry // evicted ones too
		evicted := 0
		for i := range 60_000 {
			e := keptAnswer(t, "n"+strconv.Itoa(r.IntN(400))+".test", []uint16{dns.TypeA, dns.TypeAAAA}[r.IntN(2)], 50+r.IntN(400))
			if r.IntN(200) == 0 {
				e.message = make([]byte, r.IntN(140_000))
			}
			if len(held) > 0 && r.IntN(4) > 0 {
				e = held[r.IntN(len(held))]
			}
			switch n := r.IntN(100); {
			case n < 20 && !slices.Contains(held, e):
				if c.Put(e); len(held) < 300 {
					held = append(held, e)
				} else {
					held[r.IntN(300)] = e
				}
			case n < 25:
				c.Remove(e)
			case n < 40:
				c.NoteClient(e, policy.PodRef{Name: strconv.Itoa(r.IntN(600))})
			case n < 41:
				c.DropReplies(map[*policy.View]bool{views[r.IntN(len(views))]: true, views[r.IntN(len(views))]: true})
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
				c.store(e, views[r.IntN(len(views))], r.IntN(2), &Reply{Config: configs[i/20_000%2], Guarded: said, message: make([]byte, 30+r.IntN(500)), Grants: grants}, anyView)
			default:
				c.Get(e.Query)
			}
			if i%500 == 0 {
				wantAccounts(t, c)
			}
			if keptAt(c, e.Query) != e {
				evicted++
			}
		}
		wantAccounts(t, c)
		for _, e := range held {
			c.Remove(e)
		}
		c.Clear()
		if entries, bytes := c.Usage(); entries != 0 || bytes != 0 || evicted < 1000 {
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
		c := New(tt.entries, tt.bytes)
		for i := range 5000 {
			c.Put(keptAnswer(t, strconv.Itoa(i)+".test", dns.TypeA, tt.size))
			if entries, bytes := c.Usage(); entries > tt.entries || bytes > tt.bytes {
				t.Fatalf("%s: %d entries of %d, %d bytes of %d", tt.name, entries, tt.entries, bytes, tt.bytes)
			}
		}
		if entries, bytes := c.Usage(); entries < tt.entries/2 && bytes < tt.bytes/2 {
			t.Errorf("%s: only %d entries and %d bytes are kept", tt.name, entries, bytes)
		}
		wantAccounts(t, c)
	}
}

func TestAnswerThatDoesNotFitLeavesTheOthers(t *testing.T) {
	c := New(1000, 1<<20)
	for i := range 100 {
		c.Put(keptAnswer(t, strconv.Itoa(i)+".test", dns.TypeA, 100))
	}
	c.Put(keptAnswer(t, "large.test", dns.TypeA, 1<<20/entryShare))
	if entries, _ := c.Usage(); entries != 100 {
		t.Errorf("%d are left of 100", entries)
	}
}

// TestLeastRecentlyUsedIsEvictedFirst, whichever way it was used.
func TestLeastRecentlyUsedIsEvictedFirst(t *testing.T) {
	use := map[string]func(*Cache, *Entry){
		"answer": func(c *Cache, e *Entry) { c.Get(e.Query) },
		"packet": func(c *Cache, e *Entry) { c.Packet(quickOf(t, e), nil, 0) },
	}
	for what, use := range use {
		c := New(64, 1<<30)
		kept := keptAnswer(t, "kept.test", dns.TypeA, 10)
		idle := keptAnswer(t, "idle.test", dns.TypeA, 10)
		c.Put(idle)
		c.Put(kept)
		for i := range 2000 {
			use(c, kept)
			c.Put(keptAnswer(t, strconv.Itoa(i)+".test", dns.TypeA, 10))
		}
		if keptAt(c, kept.Query) != kept || keptAt(c, idle.Query) != nil {
			t.Errorf("%s: used %v, idle %v", what, keptAt(c, kept.Query) != nil, keptAt(c, idle.Query) != nil)
		}
	}
}

// keptAt returns the entry under the query's own key.
func keptAt(c *Cache, a wire.Query) *Entry {
	return c.find(a)
}

func quickOf(t testing.TB, e *Entry) *wire.QueryView {
	t.Helper()
	q, ok := wire.ParseQuery(e.Query.PackWithoutEDNS(1))
	if !ok {
		t.Fatal("not plain")
	}
	return &q
}

// TestAnswersCountForTheirType: an answer replaces the earlier one of its type. NXDOMAIN leaves the
// other types, fresh, expired and without an answer.
func TestAnswersCountForTheirType(t *testing.T) {
	c := New(1000, 1<<20)
	zone := &corefile.Zone{Cache: &corefile.Cache{MaxTTL: time.Hour, NegativeTTL: time.Minute, ServeStale: time.Hour}}
	write := func(qtype uint16, now time.Duration, says ...string) *Entry {
		q := wire.Query{Question: wire.Question{Name: policytest.Name("one.test"), Type: qtype, Class: dns.ClassINET}}
		e := c.Write(corefile.TTL{Max: wire.MaxTTL}, zone, q, wiretest.Answer(t, new(dns.Msg).SetQuestion("one.test.", qtype), says...), netip.AddrPort{}, now)
		if e == nil {
			t.Fatalf("%v is not kept", says)
		}
		return e
	}
	write(dns.TypeA, 0, "NXDOMAIN", soa+"20")
	a := write(dns.TypeA, time.Second, "one.test. 5 IN A 192.0.2.1")
	aaaa := write(dns.TypeAAAA, 2*time.Second, "NXDOMAIN", soa+"20")
	for _, now := range []time.Duration{3 * time.Second, 10 * time.Second, 40 * time.Second} {
		for qtype, want := range map[uint16]*Entry{dns.TypeA: a, dns.TypeAAAA: aaaa, dns.TypeHTTPS: nil} {
			q := wire.Query{Question: wire.Question{Name: a.Query.Name, Type: qtype, Class: dns.ClassINET}}
			view, _ := wire.ParseQuery(q.PackWithoutEDNS(1))
			if packet, _ := c.Packet(&view, nil, now); c.Get(q) != want || packet != want {
				t.Errorf("at %v, type %d: %v and %v, want %v", now, qtype, c.Get(q), packet, want)
			}
		}
	}
	wantAccounts(t, c)
}

// TestRepliesOfOneAnswerLeaveRoomForOthers: however many pods ask, the answer
// stays, and so do others.
func TestRepliesOfOneAnswerLeaveRoomForOthers(t *testing.T) {
	c := New(100_000, 1<<20)
	hot := keptAnswer(t, "hot.test", dns.TypeA, 100)
	for i := range 400 {
		c.Put(keptAnswer(t, strconv.Itoa(i)+".test", dns.TypeA, 100))
	}
	c.Put(hot)
	before, _ := c.Usage()
	for range 5000 {
		c.store(hot, new(policy.View), 0, &Reply{message: make([]byte, 300)}, anyView)
		if len(hot.replies) == 0 {
			t.Fatal("nothing was stored")
		}
	}
	if after, _ := c.Usage(); keptAt(c, hot.Query) != hot || after < before*9/10 {
		t.Errorf("%d of %d answers are left, the hot one: %v", after, before, keptAt(c, hot.Query) == hot)
	}
	wantAccounts(t, c)
}

// TestClientsOfAnotherCachesEntry are noted nowhere, and count in no account.
func TestClientsOfAnotherCachesEntry(t *testing.T) {
	c, other := New(64, 1<<20), New(64, 1<<20)
	e := keptAnswer(t, "warmed.test", dns.TypeA, 100)
	other.Put(e)
	c.NoteClient(e, policy.PodRef{Name: "a"})
	if _, bytes := c.Usage(); bytes != 0 || len(other.Clients(e)) > 0 {
		t.Errorf("%d bytes, clients %v", bytes, other.Clients(e))
	}
	wantAccounts(t, other)
}

func TestCacheUnderManyGoroutines(t *testing.T) {
	c := New(64, 1<<20)
	names := make([]*Entry, 100)
	for i := range names {
		names[i] = keptAnswer(t, strconv.Itoa(i)+".test", dns.TypeA, 100)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 3000 {
				of := names[r.IntN(len(names))]
				fresh := &Entry{Query: of.Query, message: of.message, expires: time.Hour}
				switch e := c.Get(of.Query); {
				case e == nil || r.IntN(10) == 0:
					c.Put(fresh)
				case r.IntN(20) == 0:
					c.Remove(e)
				case r.IntN(2) == 0:
					c.NoteClient(e, policy.PodRef{Name: strconv.Itoa(r.IntN(10))})
				default:
					c.store(e, nil, r.IntN(2), &Reply{message: make([]byte, r.IntN(200))}, anyView)
				}
			}
		})
	}
	wg.Wait()
	wantAccounts(t, c)
}
