package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// made makes the grants of addresses, all of which the guard left.
func made(g *query, v *policy.View, n fqdn.Name, d policy.Decision, addrs []wire.Address) {
	at := make([]int, len(addrs))
	g.granted.reset()
	for i, a := range addrs {
		at[i] = i
		g.answers = append(g.answers, audit.Answer{Addr: a.Addr, TTL: a.TTL})
	}
	d.Query.Name = n
	g.make(v, &d, false, addrs, at, noon)
}

// opens lists the decision's openings of the addresses at one moment, a line for each
// address and port set of each grant, and for each address the logged openings.
func opens(d policy.Decision, addrs []wire.Address) (grants []string, logged [][]audit.Opened) {
	logged = make([][]audit.Opened, len(addrs))
	for i, a := range addrs {
		for _, o := range d.Openings(a.TTL) {
			if o.Lifetime > 0 {
				grants = append(grants, fmt.Sprint(a.Addr, o.Ports, noon.Add(o.Lifetime), o.By))
				logged[i] = append(logged[i], audit.Opened{Ports: o.Ports, Until: noon.Add(o.Lifetime)})
			}
		}
	}
	slices.Sort(grants)
	return grants, logged
}

// TestGrantsAreTheDecisionsOpenings: grants and record, whatever was made in the same
// slices before, with as few grants as there are TTLs and port sets.
func TestGrantsAreTheDecisionsOpenings(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 15))
	view := &policy.View{Pod: labPod("web", "10.1.0.2")}
	n := policytest.Name("www.example.org")
	var g query
	for range 3000 {
		var d policy.Decision
		for i := range 1 + rng.IntN(4) {
			m := &policy.Match{Rule: &policy.Rule{Policy: fmt.Sprintf("shop/p%d", i), Ports: []policy.PortSet{"tcp/80", "tcp/443", "any"}[rng.IntN(3)], Audit: rng.IntN(5) == 0}}
			m.TTL = policy.TTL{Min: time.Duration(rng.IntN(3)*rng.IntN(50)) * time.Second, Max: time.Duration(rng.IntN(100)) * time.Second, Grace: time.Duration(rng.IntN(2)) * time.Second}
			d.Matches = append(d.Matches, m)
		}
		addrs := make([]wire.Address, 1+rng.IntN(5))
		same := rng.IntN(2) == 0
		for i := range addrs {
			addrs[i] = wire.Address{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(4))}), TTL: 60, Record: i}
			if !same {
				addrs[i].TTL = uint32(rng.IntN(3) * 30)
			}
		}
		made(&g, view, n, d, addrs)
		grants, opened := opens(d, addrs)
		var got []string
		for _, of := range g.grants {
			for _, a := range of.Addrs {
				got = append(got, fmt.Sprint(a, of.Ports, of.Deadline, of.By))
			}
			if of.View != view || of.Name != n || of.Pod != view.Pod.PodRef {
				t.Fatalf("grants of %v by %v: %+v", addrs, d, of)
			}
		}
		count, ttls := 0, map[uint32]bool{}
		for _, a := range addrs {
			for _, o := range d.Openings(a.TTL) {
				if !ttls[a.TTL] && o.Lifetime > 0 {
					count++
				}
			}
			ttls[a.TTL] = true
		}
		diff.MustEqual(t, count, len(g.grants), "grants of", addrs, "by", d)
		slices.Sort(got)
		diff.Fatal(t, grants, got, "grants of", addrs, "by", d)
		want := audit.Record{Time: noon}
		for i, a := range addrs {
			want.Answers = append(want.Answers, audit.Answer{Addr: a.Addr, Openings: opened[i]})
		}
		if got := (audit.Record{Time: noon, Answers: g.answers}); rng.IntN(10) == 0 && lineOf(t, got) != lineOf(t, want) {
			t.Fatalf("logged\n%s\nwant\n%s", lineOf(t, got), lineOf(t, want))
		}
	}
}

func TestGrantedAllocatesNothingAgain(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	view, n := &policy.View{Pod: labPod("web", "10.1.0.2")}, policytest.Name("www.example.org")
	d := policy.Decision{Matches: []*policy.Match{{Rule: &policy.Rule{Ports: "tcp/443", TTL: policy.TTL{Max: time.Hour}}}}}
	addrs := addresses("192.0.2.1", "192.0.2.2")
	var g query
	d.AppendOpenings(nil, 60) // a match caches its part once
	if a := testing.AllocsPerRun(100, func() { made(&g, view, n, d, addrs); g.granted.reset() }); a > 2 {
		t.Errorf("%v allocations", a)
	}
}

func addresses(list ...string) (addrs []wire.Address) {
	for i, a := range list {
		ttl := 60
		if before, after, found := strings.Cut(a, "@"); found {
			ttl, _ = strconv.Atoi(before)
			a = after
		}
		addrs = append(addrs, wire.Address{Addr: netip.MustParseAddr(a), TTL: uint32(ttl), Record: i})
	}
	return addrs
}

// TestOpenAddressesNeedNoWrite: while it hangs, a kept answer that is open is given,
// also without the packet cache.
func TestOpenAddressesNeedNoWrite(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	for range 2 {
		l.ask("10.1.0.4", "www.example.org", dns.TypeA)
		l.pass(time.Millisecond)
	}
	calls := l.kernel.calls
	if r := l.ask("10.1.0.4", "www.example.org", dns.TypeA); len(r.Answer) != 1 || l.kernel.calls != calls {
		t.Errorf("%v, after %d more calls", r, l.kernel.calls-calls)
	}
}

// waitingFor returns so many queries that wait for the kernel.
func waitingFor(n int) []*query {
	out := make([]*query, n)
	for i := range out {
		out[i] = new(query)
		out[i].wait.epoch.Store(2*uint64(i) + 1)
	}
	return out
}

// quietClock is a server whose clock a test moves; its ticks are the test's.
func quietClock(t *testing.T) (*cacheLab, *grantTimeouts) {
	l := newCacheLab(t, nil)
	o := &l.s.timeouts
	o.running = true // no timer of its own
	return l, o
}

// TestTimeoutsDropEndedQueries: at the next tick, behind one that waits on too.
func TestTimeoutsDropEndedQueries(t *testing.T) { synctest.Test(t, testTimeoutsDropEndedQueries) }

func testTimeoutsDropEndedQueries(t *testing.T) {
	l, o := quietClock(t)
	stuck := waitingFor(1)[0]
	o.add(l.s, stuck, stuck.wait.epoch.Load(), time.Hour)
	for range 3 {
		for _, x := range waitingFor(1000) {
			o.add(l.s, x, x.wait.epoch.Load(), time.Hour)
			x.wait.epoch.Add(1)
		}
		o.tick(l.s)
		if len(o.waits) != 1 || o.waits[0].q != stuck || !o.running || cap(o.waits) > 2048 {
			t.Errorf("%d wait, with room for %d", len(o.waits), cap(o.waits))
		}
		for i, w := range o.waits[:cap(o.waits)][1:] {
			if w.q != nil {
				t.Fatalf("place %d holds on to what has ended", i)
			}
		}
	}
	stuck.wait.epoch.Add(1)
	if o.tick(l.s); o.running || len(o.waits) != 0 {
		t.Errorf("it ticks on: %+v", o)
	}
}

// TestTickEndsLateGrants: that and nothing else, and once. What is acknowledged after a
// time in which the process did not run is not late, whatever runs first then.
func TestTickEndsLateGrants(t *testing.T) { synctest.Test(t, testTickEndsLateGrants) }

func testTickEndsLateGrants(t *testing.T) {
	l, o := quietClock(t)
	given := 0
	all := waitingFor(10)
	over := make([]chan struct{}, len(all))
	for i, q := range all {
		h := &inHand{over: make(chan struct{})}
		q.s, q.setup, q.to, over[i] = l.s, l.s.setup.Load(), h, h.over
		q.keep(packed(t, newQuery("www.example.org", dns.TypeA)))
		q.client = l.who("10.1.0.2")
		o.add(l.s, q, q.wait.epoch.Load(), time.Duration(i+1)*time.Second)
	}
	l.pass(6 * time.Second)
	o.tick(l.s)
	all[3].wait.epoch.Add(1) // it is acknowledged
	o.tick(l.s)
	for i, q := range all {
		late := i <= 5 && i != 3
		if late {
			<-over[i]
			given++
		}
		diff.Equal(t, late || i == 3, q.wait.epoch.Load() != 2*uint64(i)+1, "query", i, "over")
		if i > 5 {
			break // the others wait on
		}
		if q.Granted(nil, false); late && q.wait.epoch.Load() != 2*uint64(i)+2 {
			t.Errorf("query %d went on after it was given up", i)
		}
	}
	if s := l.s.Stats(); s.GrantFailures != uint64(given) || given != 5 {
		t.Errorf("%d given up, %+v", given, s)
	}
}
