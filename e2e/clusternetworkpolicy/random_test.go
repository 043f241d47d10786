package clusternetworkpolicy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// A failure says its seed: -seed N -seeds 1 runs that one again.
var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the random clusters")
	seeds     = flag.Uint64("seeds", 5000, "how many seeds: each is a cluster")
)

// flowsOfSeed is how many connections are asked about in each cluster.
const flowsOfSeed = 40

// TestRandomClusters compares random connections in random clusters. A connection of a known
// difference is counted and not compared.
func TestRandomClusters(t *testing.T) {
	r := newReference()
	seen, verdicts := map[difference]int{}, map[bool]int{}
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		g := &maker{rand.New(rand.NewPCG(seed, 11))}
		w := g.world()
		compiler := compile.New()
		compiler.Compile((&maker{rand.New(rand.NewPCG(seed-1, 11))}).world().input()) // which leaves nothing behind
		s := compiler.Compile(w.input())
		for _, p := range s.Problems {
			if p.Reason != policy.ReasonHostNetwork {
				t.Fatalf("seed %d: %+v", seed, p)
			}
		}
		r.take(t, w)
		for range flowsOfSeed {
			f, ok := g.flow(w)
			if !ok {
				continue
			}
			got, asked := w.allows(t, s, f)
			if d := w.known(f, asked); d != "" {
				seen[d]++
				continue
			}
			verdicts[got]++
			if want := r.allows(t, f); got != want {
				t.Fatalf("seed %d: -run TestRandomClusters -seed %d -seeds 1\n%s/%s %v to %v, reached %v: allowed %v, the reference says %v\n%s",
					seed, seed, f.from.Namespace, f.from.Name, f.proto, f.dialled, f.reached, got, want, w.show(t))
			}
		}
	}
	t.Logf("%v compared; not compared: %v", verdicts, seen)
	if *seeds >= 1000 && (verdicts[true] < 10000 || verdicts[false] < 10000) {
		t.Errorf("the test asks too little: %v", verdicts)
	}
}

// show writes the cluster.
func (w *world) show(t *testing.T) string {
	var b strings.Builder
	for _, p := range w.pods {
		fmt.Fprintf(&b, "pod %s/%s %v %v %v host %v\n", p.Namespace, p.Name, p.Labels, p.IPs, p.Ports, p.HostNetwork)
	}
	fmt.Fprintln(&b, w.namespaces, w.nodes)
	for _, l := range w.lookups {
		fmt.Fprintln(&b, l.pod.Name, "asked", l.name, l.addrs)
	}
	for _, o := range w.cnps {
		text, err := yaml.Marshal(o.Object)
		fatal.If(t, err)
		fmt.Fprintf(&b, "---\n%s", text)
	}
	for _, o := range w.nps {
		text, err := yaml.Marshal(o)
		fatal.If(t, err)
		fmt.Fprintf(&b, "---\n%s", text)
	}
	return b.String()
}
