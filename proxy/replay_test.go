package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
)

// twoLogs takes the records of both ways, without what differs between them.
type twoLogs struct {
	ways  [2]bytes.Buffer
	logs  [2]*audit.Log
	way   int // -1: nobody looks
	wrote bool
}

func newTwoLogs() *twoLogs {
	l := &twoLogs{way: -1}
	for i := range l.logs {
		l.logs[i] = audit.To(&l.ways[i], audit.Options{Node: "node-1", Queue: 1 << 20})
	}
	return l
}

func (l *twoLogs) Write(r audit.Record) {
	if l.wrote = true; l.way >= 0 {
		r.Latency, r.TCP = 0, false
		l.logs[l.way].Write(r)
	}
}

func (l *twoLogs) lines(t *testing.T) (quick, long []string) {
	t.Helper()
	for _, log := range l.logs {
		if err := log.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(l.ways[0].String(), "\n"), strings.Split(l.ways[1].String(), "\n")
}

// twinTable are the answers of the twin's upstream: every kind that grants, leads,
// denies or is refused, with TTLs around the policies' bounds.
func twinTable(r *rand.Rand) map[string][]string {
	ttl := func() string {
		return " " + itoa([]int{1, 3, 9, 10, 11, 25, 30, 60, 100, 101, 300, 4000}[r.IntN(12)]) + " IN "
	}
	addr := func() string { return "192.0.2." + itoa(1+r.IntN(4)) }
	table := map[string][]string{}
	for _, n := range []string{"www.example.org", "one.test", "a.wild.test", "two.test", "host.test", "db.shop.svc.cluster.local"} {
		switch r.IntN(6) {
		case 0:
			table[n+" A"] = []string{n + "." + ttl() + "CNAME cdn.test.", "cdn.test." + ttl() + "A " + addr(), "cdn.test." + ttl() + "A " + addr()}
		case 1:
			table[n+" A"] = []string{"NXDOMAIN", "~test. 300 IN SOA ns.test. admin.test. 1 2 3 4 " + itoa(1+r.IntN(40))}
		case 2:
			table[n+" A"] = []string{n + "." + ttl() + "A 203.0.113.250", n + "." + ttl() + "A " + addr()} // a Service's
		default:
			table[n+" A"] = []string{n + "." + ttl() + "A " + addr(), n + "." + ttl() + "A " + addr(), "~test. 77 IN NS ns.test.", "+ns.test. 88 IN A 192.0.2.9"}
		}
		table[n+" AAAA"] = []string{"~test. 300 IN SOA ns.test. admin.test. 1 2 3 4 " + itoa(1+r.IntN(40))}
		table[n+" SRV"] = []string{n + "." + ttl() + "SRV 0 0 1 host.test."}
		table[n+" HTTPS"] = []string{n + "." + ttl() + "HTTPS 0 host.test."}
		if r.IntN(2) == 0 {
			table[n+" HTTPS"] = []string{n + "." + ttl() + "HTTPS 1 host.test. ipv4hint=" + addr()}
		}
	}
	return table
}

// TestGivenAgainIsWhatTheLongWaySays: for random questions, pods, reloads, kernels and
// clocks a reply from the socket's reader is, to the letter's case, what the long
// way says at that moment, with the same line in the log, and every address in it is open.
func TestGivenAgainIsWhatTheLongWaySays(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	w := newFuzzWorld(t)
	for i, c := range fuzzConfigs {
		w.configs[i] = configWith(t, strings.ReplaceAll(c, "prefetch 2 1m 50%", "")) // a hit would change what comes after it
	}
	same := map[string]int{}
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 17))
		l := newFuzzRun(t, w)
		l.cacheLab.up = &memory{table: twinTable(r)}
		l.use(l.config, l.cacheLab.up)
		pool, logs := twinForms(r), newTwoLogs()
		l.s.log = logs
		for range 1500 {
			l.twinStep(r, pool, logs, same)
		}
		quick, long := logs.lines(t)
		if !slices.Equal(quick, long) {
			for i := range quick {
				if i >= len(long) || quick[i] != long[i] {
					t.Fatalf("round %d: given again it logs\n%s\nthe long way\n%s", round, quick[i], long[min(i, len(long)-1)])
				}
			}
		}
		if wantAccounts(t, l.s.setup.Load().keeper.cache); t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	for _, what := range []string{"selected", "unselected", "granted", "followed", "NOERROR", "NXDOMAIN", "blocked"} {
		if same[what] < 4*rounds {
			t.Errorf("only %d replies were given again that are %s: %v", same[what], what, same)
		}
	}
}

func (l *fuzzRun) twinStep(r *rand.Rand, pool []twinForm, logs *twoLogs, same map[string]int) {
	l.t.Helper()
	switch n := r.IntN(1000); {
	case n < 150:
		l.pass(time.Duration(r.IntN(1500)) * time.Millisecond)
	case n < 152:
		l.pass(-time.Duration(r.IntN(5000)) * time.Millisecond)
	case n < 156:
		one := byte(1 + r.IntN(4))
		l.ledger.forget(func(o opening) bool { b := o.addr.As4(); return b[3] == one })
	case n < 160:
		l.s.Publish(pick(l.world.snaps, byte(r.Uint32())))
	case n < 164:
		l.config = l.world.configs[[]int{0, 1, 2, 2, 0}[r.IntN(5)]]
		l.use(l.config, l.cacheLab.up)
	case n < 168:
		l.s.SetCluster(pick(fuzzClusters, byte(r.Uint32())))
	case n < 170:
		l.cacheLab.up.mu.Lock()
		l.cacheLab.up.table = twinTable(r)
		l.cacheLab.up.mu.Unlock()
	case n < 174:
		l.ledger.fail(errors.New("the kernel is busy"))
	default:
		form := pool[r.IntN(len(pool))]
		m := form.query.Copy()
		m.Id = uint16(r.Uint32())
		if m.IsEdns0() != nil {
			m.IsEdns0().SetUDPSize(uint16(r.IntN(2000)))
		}
		if r.IntN(8) == 0 {
			m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
		}
		l.twin(form.from, packed(l.t, m), logs, same)
	}
	l.settle()
}

// twinForm is a question that a pod asks again and again.
type twinForm struct {
	from  string
	query *dns.Msg
}

func twinForms(r *rand.Rand) (pool []twinForm) {
	names := []string{"www.example.org.", "one.test.", "a.wild.test.", "two.test.", "host.test.", "db.shop.svc.cluster.local.", "www.example.org.corp.test."}
	for range 16 {
		m := newQuery(names[r.IntN(len(names))], []uint16{dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeHTTPS}[r.IntN(6)])
		if r.IntN(2) == 0 {
			m.SetEdns0(1232, r.IntN(4) == 0)
		}
		from := fuzzPods[r.IntN(len(fuzzPods)-1)]
		pool = append(pool, twinForm{from, m})
		if r.IntN(2) == 0 { // and the same pod what that may lead it to
			pool = append(pool, twinForm{from, newQuery("host.test.", dns.TypeA)})
		}
	}
	return pool
}

// twin asks quickly, and if that has a reply the long way too, which does not
// remember anything over TCP.
func (l *fuzzRun) twin(from string, packet []byte, logs *twoLogs, same map[string]int) {
	l.t.Helper()
	defer l.ledger.fail(nil)
	logs.way, logs.wrote = 0, false
	followed := l.s.stats.Followed.Load()
	wire := l.quickly(from, packet)
	logs.way = -1
	if wire == nil {
		l.slowly(from, packet, false)
		return
	}
	who := l.who(from)
	l.wantHonest(packet, wire, who, false)
	l.ledger.fail(nil)
	if wrote := logs.wrote; wrote != (who.view != nil) {
		l.t.Fatalf("%s: logged %v", from, wrote)
	}
	writes, m := l.ledger.writes, parsed(l.t, wire)
	logs.way = 1
	long := l.slowly(from, packet, true)
	logs.way = -1
	l.wantSame(packet, wire, long)
	if l.ledger.writes != writes {
		l.t.Fatalf("%s: the long way has something to write\n%v", from, m)
	}
	same[dns.RcodeToString[m.Rcode]]++
	same[map[bool]string{true: "selected", false: "unselected"}[who.view != nil]]++
	if l.s.stats.Followed.Load() > followed {
		same["followed"]++
	}
	if len(m.Answer) > 0 && who.view != nil && who.view.Decide(name(l.t, m.Question[0].Name)).Allowed() {
		same["granted"]++
	} else if who.view != nil && who.view.Decide(name(l.t, m.Question[0].Name)).Allowed() && m.Rcode == 0 {
		same["blocked"]++
	}
}

// TestForgottenGrantSendsTheQueryTheLongWay: what the kernel lost is opened anew
// before the pod is answered.
func TestForgottenGrantSendsTheQueryTheLongWay(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	q := newQuery("www.example.org", dns.TypeA)
	for range 3 {
		l.any("10.1.0.2", q)
	}
	l.ledger.forget(func(opening) bool { return true })
	if _, quick := l.any("10.1.0.2", q); quick || l.ledger.until(labPods[0].PodRef, mustAddr("192.0.2.1")).IsZero() {
		t.Error("answered, and not open")
	}
	if _, quick := l.any("10.1.0.2", q); !quick {
		t.Error("not given again once it is open again")
	}
}

// TestFailureIsNotGivenAgain: when the kernel takes grants again the next query is answered.
func TestFailureIsNotGivenAgain(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	q := newQuery("www.example.org", dns.TypeA)
	l.any("10.1.0.6", q)
	l.ledger.fail(errors.New("the kernel is busy"))
	for range 3 {
		if r, quick := l.any("10.1.0.2", q); r.Rcode != dns.RcodeServerFailure || quick {
			t.Fatalf("%v, quick %v", r, quick)
		}
	}
	l.ledger.fail(nil)
	if r, _ := l.any("10.1.0.2", q); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 {
		t.Errorf("the kernel is well again: %v", r)
	}
}

// TestReplayEndsWhereTheTTLsBoundBegins: a TTL above the policy's greatest is told
// as that each time, also of a record that opens nothing.
func TestReplayEndsWhereTheTTLsBoundBegins(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test MX": {"one.test. 1000 IN MX 10 mail.test."}, "one.test A": {"one.test. 1000 IN CNAME cdn.test.", "cdn.test. 50 IN A 192.0.2.1"}})
	for range 20 {
		l.pass(1100 * time.Millisecond)
		for _, qtype := range []uint16{dns.TypeMX, dns.TypeA} {
			if r, _ := l.any("10.1.0.7", newQuery("one.test", qtype)); r.Answer[0].Header().Ttl != 100 {
				t.Fatalf("told %d s", r.Answer[0].Header().Ttl)
			}
		}
	}
}

func TestReplayThatTheClientCannotTakeGoesTheLongWay(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test TXT": {`a.wild.test. 60 IN TXT "` + strings.Repeat("x", 250) + `" "` + strings.Repeat("y", 250) + `" "` + strings.Repeat("z", 250) + `"`}})
	big, small := newQuery("a.wild.test", dns.TypeTXT), newQuery("a.wild.test", dns.TypeTXT)
	big.SetEdns0(1232, false)
	small.SetEdns0(600, false)
	for range 3 {
		l.any("10.1.0.2", big)
	}
	if _, quick := l.any("10.1.0.2", big); !quick {
		t.Fatal("not given again")
	}
	for range 2 {
		for _, q := range []*dns.Msg{small, newQuery("a.wild.test", dns.TypeTXT)} {
			if r, quick := l.any("10.1.0.2", q); quick || !r.Truncated || len(r.Answer) > 0 {
				t.Errorf("quick %v, truncated %v", quick, r.Truncated)
			}
		}
	}
	if _, quick := l.any("10.1.0.2", big); !quick {
		t.Error("a truncated reply took its place")
	}
}

// TestWholeAnswerOutlivesItsReplays: that a snapshot or a configuration is not the
// present one any more leaves nothing of it behind, once another reply is kept.
func TestOldSnapshotsAreNotHeld(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 600 IN A 192.0.2.1"}, "b.wild.test A": {"b.wild.test. 600 IN A 192.0.2.1"}})
	old := l.who("10.1.0.2")
	ask := func() {
		for range 3 {
			for _, n := range []string{"a.wild.test", "b.wild.test", "www.example.org"} {
				for _, from := range []string{"10.1.0.2", "10.1.0.8", "10.1.0.6"} {
					l.any(from, newQuery(n, dns.TypeA))
				}
			}
		}
	}
	for range 3 {
		ask()
		wantAccounts(t, l.s.cache)
		l.s.Publish(compile(t, labPolicies, labPods))
	}
	ask()
	// One that was under way by the old snapshot leaves nothing either.
	l.s.handle(packed(t, newQuery("a.wild.test", dns.TypeA)), old, false)
	held := 0
	for i := range l.s.cache.shards {
		for _, e := range l.s.cache.shards[i].lru.Values() {
			for k, r := range e.replays {
				if held++; r.snap != l.s.snapshot.Load() || k.view != nil && k.view != r.snap.ViewOf(k.view.Pod.PodRef) {
					t.Errorf("%v of an old snapshot", k)
				}
			}
		}
	}
	if held != 6 {
		t.Errorf("%d replies are kept", held)
	}
}

// TestHitAllocatesNothing, from the packet to the reply in the queue, with the
// decision, a live grant and the log.
func TestHitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1", "www.example.org. 600 IN A 192.0.2.2"},
		"gone.wild.test AAAA": {"NXDOMAIN", soa + "30"}}, "cache {\nprefetch 5 1m 10%\nserve_stale\n}")
	log := audit.To(io.Discard, audit.Options{Node: "node-1", Queue: 1 << 16})
	defer log.Close(context.Background())
	l.s.log, l.s.coverer = log, always{}
	b := &listener{s: l.s, batch: new(batch)}
	b.addr = netip.AddrPortFrom(endpoint, 53)
	edns := newQuery("www.example.org", dns.TypeA)
	edns.SetEdns0(1232, false)
	for from, m := range map[string]*dns.Msg{"10.1.0.2": edns, "10.1.0.3": newQuery("WWW.example.org", dns.TypeA), "10.1.0.6": newQuery("www.example.org", dns.TypeA), "10.1.0.8": newQuery("gone.wild.test", dns.TypeAAAA)} {
		packet := packed(t, m)
		for range 3 {
			l.any(from, m)
		}
		l.pass(100 * time.Millisecond)
		client, hits := netip.AddrPortFrom(mustAddr(from), 5353), l.s.stats.CacheHits.Load()
		n := testing.AllocsPerRun(1000, func() {
			b.batch.out.count = 0
			b.take(0, packet, client, l.now())
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", from, n)
		}
		if got := l.s.stats.CacheHits.Load() - hits; got != 1001 || b.batch.out.count != 1 {
			t.Errorf("%s: %d hits, %d replies queued", from, got, b.batch.out.count)
		}
	}
}

type always struct{}

func (always) Covered([]policy.Grant) bool { return true }

// TestTTLsOfAreWhereTheTTLsStand in messages of every shape that we pack.
func TestTTLsOfAreWhereTheTTLsStand(t *testing.T) {
	for _, seed := range [][]string{
		{"www.example.org. 7 IN A 192.0.2.1"},
		{"www.example.org. 7 IN CNAME a.example.org.", "a.example.org. 7 IN AAAA 2001:db8::1", "~org. 7 IN SOA a.org. b.org. 1 2 3 4 5", "+a.org. 7 IN A 192.0.2.1"},
		{"~. 7 IN NS a.", "www.example.org. 7 IN HTTPS 1 . alpn=h2"},
	} {
		up := &memory{table: map[string][]string{"www.example.org A": seed}}
		got, err := up.resolve(askFor(t, "www.example.org"))
		if err != nil {
			t.Fatal(err)
		}
		got.msg.Compress = true
		got.msg.SetEdns0(1232, true)
		wire := packed(t, got.msg)
		at := ttlsOf(wire)
		if len(at) != len(seed) {
			t.Errorf("%d TTLs of %d", len(at), len(seed))
		}
		for _, i := range at {
			if binary.BigEndian.Uint32(wire[i:]) != 7 {
				t.Errorf("at %d stands %d", i, binary.BigEndian.Uint32(wire[i:]))
			}
		}
	}
}
