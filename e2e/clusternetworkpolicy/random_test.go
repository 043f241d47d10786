package clusternetworkpolicy

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/cnptest"
)

// A failure says its seed: -seed N -seeds 1 runs that one again.
var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the random clusters")
	seeds     = flag.Uint64("seeds", 5000, "how many seeds: each is a cluster")
	update    = flag.Bool("update", false, "write the golden files anew")
)

// compare returns the reference's mark of a connection. One of a known difference is counted
// and not compared.
func compare(t *testing.T, r *reference, seed uint64, c cnptest.Case, a cnptest.Asked, seen map[cnptest.Difference]int, verdicts map[bool]int) byte {
	t.Helper()
	if a.Known != "" {
		seen[a.Known]++
		return cnptest.NotCompared
	}
	verdicts[a.Allowed]++
	want := r.allows(t, a.Flow)
	if want != a.Allowed {
		t.Errorf("seed %d: -run TestRandomClusters -seed %d -seeds 1\n%s/%s %v to %v, reached %v: allowed %v, the reference says %v\n%s",
			seed, seed, a.From.Namespace, a.From.Name, a.Proto, a.Dialled, a.Reached, a.Allowed, want, c.World.Show(t))
	}
	if want {
		return cnptest.Yes
	}
	return cnptest.No
}

// lines returns the lines of clusters in the golden file, and compares random connections in them.
func lines(t *testing.T, first, count uint64) (out []string, verdicts map[bool]int) {
	t.Helper()
	r := newReference()
	seen, verdicts := map[cnptest.Difference]int{}, map[bool]int{}
	for seed := first; seed < first+count; seed++ {
		c := cnptest.NewCase(t, seed)
		r.take(t, c.World)
		out = append(out, c.Line(t, func(a cnptest.Asked) byte { return compare(t, r, seed, c, a, seen, verdicts) }))
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%v compared; not compared: %v", verdicts, seen)
	return out, verdicts
}

// TestRandomClusters compares random connections in random clusters, the first of which
// TestGolden compares.
func TestRandomClusters(t *testing.T) {
	first, count := *firstSeed, *seeds
	if first == 1 && count > cnptest.Clusters {
		first, count = first+cnptest.Clusters, count-cnptest.Clusters
	}
	if _, verdicts := lines(t, first, count); count >= 1000 && (verdicts[true] < 10000 || verdicts[false] < 10000) {
		t.Errorf("the test asks too little: %v", verdicts)
	}
}

// TestGolden: the golden file, with which a test beside the compiler compares, has the reference's
// answers.
func TestGolden(t *testing.T) {
	t.Run("reference", func(t *testing.T) {
		want, _ := lines(t, 1, cnptest.Clusters)
		current(t, "reference.txt", want)
	})
	t.Run("schema", func(t *testing.T) { current(t, "schema.txt", schemaLines(t)) })
}

// current holds a golden file against its lines, and writes it with -update.
func current(t *testing.T, file string, want []string) {
	t.Helper()
	file = "../../testkit/cnptest/testdata/" + file
	text := strings.Join(want, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != text {
		t.Errorf("%s is stale (%v); run: make generate", file, err)
	}
}

// TestDifferences: each difference is real. If the reference changes its mind, the case and
// its words go.
func TestDifferences(t *testing.T) {
	for _, d := range cnptest.EachDifference(t) {
		r := newReference()
		r.take(t, d.World)
		if r.allows(t, d.Flow) == d.Allowed {
			t.Errorf("%s: the reference allows %v too", d.Difference, d.Allowed)
		}
	}
}
