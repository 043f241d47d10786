package cyclonus

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// A failure has its seed: -seed N -seeds 1 repeats it.
var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the random policy sets")
	seeds     = flag.Uint64("seeds", 2500, "how many seeds: each is a history of four policy sets")
)

// statesOfSeed is how many policy sets one compiler sees, each changed from the last.
const statesOfSeed = 4

// TestRandomSets compares 10,000 random policy sets.
func TestRandomSets(t *testing.T) {
	n := counts{}
	asked, allowed := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		g := &maker{rand.New(rand.NewPCG(seed, 7))}
		w, compiler := g.world(), compile.New()
		for state := range statesOfSeed {
			if state > 0 {
				g.change(w)
			}
			s := compiler.Compile(w.input())
			count, wrong := w.compare(s, n, outside, randomKinds())
			asked += count
			for _, set := range s.PeerSets {
				allowed += len(set.Addrs) + len(set.Networks) + len(set.Ports)
			}
			if len(wrong) > 0 {
				t.Errorf("seed %d, state %d: -run TestRandomSets -seed %d -seeds 1\nfewest policies that show it:\n%s\n%s",
					seed, state, seed, show(w.smallest(outside, randomKinds())), strings.Join(wrong[:min(len(wrong), 5)], "\n"))
				break
			}
		}
		if t.Failed() && seed > *firstSeed+20 {
			t.Fatal("enough")
		}
	}
	if asked == 0 || allowed == 0 {
		t.Errorf("%d questions about sets with %d members: the test asks nothing", asked, allowed)
	}
	t.Logf("%d policy sets, %d questions, sets with %d members; nothing left out; told in other words: %v", *seeds*statesOfSeed, asked, allowed, n)
}

// smallest returns as few of the policies as a fresh compiler still gets wrong; all of
// them if the history matters.
func (w *world) smallest(outside []netip.Addr, kinds []packet) []*networkingv1.NetworkPolicy {
	fails := func(policies []*networkingv1.NetworkPolicy) bool {
		v := *w
		v.policies = policies
		_, wrong := v.compare(compile.New().Compile(v.input()), counts{}, outside, kinds)
		return len(wrong) > 0
	}
	left := w.policies
	if !fails(left) {
		return left
	}
	for i := 0; i < len(left); {
		if less := slices.Delete(slices.Clone(left), i, i+1); fails(less) {
			left = less
		} else {
			i++
		}
	}
	return left
}

func randomKinds() []packet {
	out := []packet{{icmp, 0}}
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		for _, port := range []uint16{53, 80, 81, 8080} {
			out = append(out, packet{p, port})
		}
	}
	return append(out, packet{policy.TCP, 1}, packet{policy.UDP, 65535})
}
