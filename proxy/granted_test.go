package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/wire"
)

// TestGrantedTwins: grants and record are those of grantsOf, whatever was made in
// the same slices before.
func TestGrantedTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 15))
	view := &policy.View{Pod: labPod("web", "10.1.0.2")}
	n := name(t, "www.example.org")
	var g granted
	for range 3000 {
		var d policy.Decision
		for i := range 1 + rng.IntN(4) {
			m := &policy.Match{Policy: fmt.Sprintf("shop/p%d", i), Ports: []policy.PortSet{"tcp/80", "tcp/443", "any"}[rng.IntN(3)], Audit: rng.IntN(5) == 0}
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
		g.make(view, n, d, addrs, noon)
		grants, opened := grantsOf(view, n, d, addrs, noon)
		if got, want := fmt.Sprint(g.grants), fmt.Sprint(grants); got != want && len(grants) > 0 || len(g.grants) != len(grants) {
			t.Fatalf("grants of %v by %v:\n%s\nwant\n%s", addrs, d, got, want)
		}
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
	view, n := &policy.View{Pod: labPod("web", "10.1.0.2")}, name(t, "www.example.org")
	d := policy.Decision{Matches: []*policy.Match{{Ports: "tcp/443", TTL: policy.TTL{Max: time.Hour}}}}
	addrs := addresses("192.0.2.1", "192.0.2.2")
	var g granted
	d.AppendOpenings(nil, 60) // what a match makes once
	if a := testing.AllocsPerRun(100, func() { g.make(view, n, d, addrs, noon); g.reset() }); a > 1 {
		t.Errorf("%v allocations", a)
	}
}
