package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// made makes the grants of addresses, all of which the guard left.
func made(g *granted, v *policy.View, n fqdn.Name, d policy.Decision, addrs []wire.Address) {
	at := make([]int, len(addrs))
	g.reset()
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
	var g granted
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
	var g granted
	d.AppendOpenings(nil, 60) // a match caches its part once
	if a := testing.AllocsPerRun(100, func() { made(&g, view, n, d, addrs); g.reset() }); a > 2 {
		t.Errorf("%v allocations", a)
	}
}
