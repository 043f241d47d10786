package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// twoLogs takes the records of both ways, without what differs between them.
type twoLogs struct {
	ways  [2]bytes.Buffer
	logs  [2]*audit.Log
	way   int // -1: not compared
	wrote bool
}

func newTwoLogs() *twoLogs {
	l := &twoLogs{way: -1}
	for i := range l.logs {
		l.logs[i] = audit.To(&l.ways[i], audit.Options{Node: "node-1", Queue: 1 << 30})
	}
	return l
}

func (l *twoLogs) Write(r audit.Record) {
	if l.wrote = true; l.way >= 0 {
		r.Latency, r.TCP = 0, false
		l.logs[l.way].Write(r)
	}
}

func (l *twoLogs) Prepare(r *audit.Record) *audit.Prepared { return l.logs[0].Prepare(r) }

func (l *twoLogs) Repeat(p *audit.Prepared, at time.Time, from netip.Addr, _ time.Duration) {
	if l.wrote = true; l.way >= 0 {
		l.logs[l.way].Repeat(p, at, from, 0)
	}
}

// wantSame compares the lines of both ways.
func (l *twoLogs) wantSame(t *testing.T, round int) {
	t.Helper()
	for _, log := range l.logs {
		fatal.If(t, log.Close(context.Background()))
	}
	equal(t, fmt.Sprintf("round %d: the lines of replies that are given again", round), strings.SplitAfter(l.ways[0].String(), "\n"), strings.SplitAfter(l.ways[1].String(), "\n"))
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
			table[n+" HTTPS"] = []string{n + "." + ttl() + "HTTPS 1 host.test. alpn=h3,h2 ech=AAAA ipv4hint=" + addr(), n + "." + ttl() + "HTTPS 2 . alpn=h3"}
		}
	}
	return table
}

// TestPacketCacheEqualsDecisions: for random questions, pods, reloads, kernels and clocks
// a reply from the packet cache equals, to the letter's case, a new decision at that
// moment, with the same line in the log, and every address in it is open.
func TestPacketCacheEqualsDecisions(t *testing.T) {
	rounds := short.Rounds(10, 60, 600)
	w := newFuzzWorld(t)
	for i, c := range fuzzConfigs {
		w.configs[i] = configWith(t, strings.ReplaceAll(c, "prefetch 2 1m 50%", "")) // a hit would change later results
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
		logs.wantSame(t, round)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	for _, what := range []string{"selected", "unselected", "granted", "followed", "NOERROR", "NXDOMAIN", "blocked", "checked"} {
		if same[what] < 4*rounds {
			t.Errorf("only %d replies were given again that are %s: %v", same[what], what, same)
		}
	}
}

func (r *fuzzRun) twinStep(rnd *rand.Rand, pool []twinForm, logs *twoLogs, same map[string]int) {
	r.t.Helper()
	switch n := rnd.IntN(1000); {
	case n < 150:
		r.pass(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	case n < 152:
		r.pass(-time.Duration(rnd.IntN(5000)) * time.Millisecond)
	case n < 156:
		one := byte(1 + rnd.IntN(4))
		r.kernel.forget(func(o opening) bool { b := o.addr.As4(); return b[3] == one })
	case n < 160:
		r.s.Publish(pick(r.world.snaps, byte(rnd.Uint32())))
	case n < 164:
		r.config = r.world.configs[[]int{0, 1, 2, 2, 0}[rnd.IntN(5)]]
		r.use(r.config, r.cacheLab.up)
	case n < 168:
		r.s.SetCluster(pick(fuzzClusters, byte(rnd.Uint32())))
	case n < 170:
		r.cacheLab.up.mu.Lock()
		r.cacheLab.up.table = twinTable(rnd)
		r.cacheLab.up.mu.Unlock()
	case n < 174:
		r.kernel.fail(errors.New("the kernel is busy"))
	default:
		form := pool[rnd.IntN(len(pool))]
		m := form.query.Copy()
		m.Id = uint16(rnd.Uint32())
		if m.IsEdns0() != nil {
			m.IsEdns0().SetUDPSize(uint16(rnd.IntN(2000)))
		}
		if rnd.IntN(8) == 0 {
			m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
		}
		r.twin(form.from, packed(r.t, m), logs, same)
	}
	r.settle()
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
		if r.IntN(2) == 0 { // and for the same pod a name from which it may be followed
			pool = append(pool, twinForm{from, newQuery("host.test.", dns.TypeA)})
		}
	}
	return pool
}

// twin asks fromPacketCache, and if it has a reply also by TCP, which stores no reply.
func (r *fuzzRun) twin(from string, packet []byte, logs *twoLogs, same map[string]int) {
	r.t.Helper()
	defer r.kernel.fail(nil)
	logs.way, logs.wrote = 0, false
	followed := r.s.stats.Followed.Load()
	wire := r.fromPacketCache(from, packet)
	logs.way = -1
	if wire == nil {
		r.decidedAgain(from, packet, false)
		return
	}
	who := r.who(from)
	r.wantHonest(packet, wire, who, false)
	r.kernel.fail(nil)
	diff.MustEqual(r.t, who.view != nil, logs.wrote, from, "logged")
	writes, m := r.kernel.writes, parsed(r.t, wire)
	logs.way = 1
	long := r.decidedAgain(from, packet, true)
	logs.way = -1
	r.wantSame(packet, wire, long)
	diff.MustEqual(r.t, writes, r.kernel.writes, from, "writes", m)
	same[dns.RcodeToString[m.Rcode]]++
	same[map[bool]string{true: "selected", false: "unselected"}[who.view != nil]]++
	if r.s.stats.Followed.Load() > followed {
		same["followed"]++
	}
	if len(m.Answer) > 0 && who.view != nil && who.view.Decide(policytest.Name(m.Question[0].Name)).Allowed() {
		same["granted"]++
		if who.view.Decide(policytest.Name(m.Question[0].Name)).Checks() {
			same["checked"]++
		}
	} else if who.view != nil && who.view.Decide(policytest.Name(m.Question[0].Name)).Allowed() && m.Rcode == 0 {
		same["blocked"]++
	}
}

// TestConcurrentQueries, while everything else changes: every address in a reply is open.
func TestConcurrentQueries(t *testing.T) {
	w := newFuzzWorld(t)
	l := newCacheLab(t, twinTable(rand.New(rand.NewPCG(1, 17))), fuzzConfigs[0])
	l.s.log = &discardLog{}
	stop := make(chan struct{})
	var changes sync.WaitGroup
	var published atomic.Int64 // there are two snapshots: one comes back
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			l.pass(100 * time.Millisecond)
			switch i % 40 {
			case 10:
				published.Add(1)
				l.s.Publish(w.snaps[i/40%2])
			case 20:
				l.s.SetCluster(fuzzClusters[i/40%2])
			case 30:
				l.s.mu.Lock()
				l.use(w.configs[i/40%3], l.up)
				l.s.mu.Unlock()
			}
			runtime.Gosched()
		}
	})
	var clients sync.WaitGroup
	for g := range 8 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			pool := twinForms(r)
			for range 1500 {
				form := pool[r.IntN(len(pool))]
				packet := packed(t, form.query)
				before := published.Load()
				who := l.who(form.from)
				wire := l.fromPacketCache(form.from, packet)
				if wire == nil {
					wire = l.decidedAgain(form.from, packet, false)
				}
				m := new(dns.Msg)
				if err := m.Unpack(wire); err != nil {
					t.Errorf("%v: %x", err, wire)
					return
				}
				if published.Load() != before || who.view == nil || !who.view.Enforced || !who.view.Decide(policytest.Name(form.query.Question[0].Name)).Allowed() || l.who(form.from).snap != who.snap {
					continue
				}
				for _, rr := range m.Answer {
					for _, a := range everyAddress(rr) {
						if l.kernel.until(who.view.Pod.PodRef, a).IsZero() {
							t.Errorf("%s is told %v, which was never open: %v", form.from, a, m)
						}
					}
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	changes.Wait()
	l.settle()
	if l.s.stats.Panics.Load() != 0 || l.s.stats.CacheHits.Load() < 1000 {
		t.Errorf("%d faults, %d hits", l.s.stats.Panics.Load(), l.s.stats.CacheHits.Load())
	}
}
