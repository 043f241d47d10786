package cnptest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// The module e2e/clusternetworkpolicy compares the golden files, and more clusters, with the
// reference implementation and with an API server's schema.

// marksOf returns the marks of a line, and ends the test if it is of another digest.
func marksOf(t *testing.T, line, ours string) string {
	t.Helper()
	digest, marks, _ := strings.Cut(line, " ")
	if want, _, _ := strings.Cut(ours, " "); digest != want {
		t.Fatal("the golden file is of other clusters or policies; run: make generate")
	}
	return marks
}

// TestRandomClusters: Namegate's verdicts are the reference's, except for known differences.
func TestRandomClusters(t *testing.T) {
	lines := Read(t, "testdata/reference.txt")
	if len(lines) != Clusters {
		t.Fatalf("%d clusters", len(lines))
	}
	compared := map[byte]int{}
	for i, line := range lines {
		seed := uint64(i + 1)
		c := NewCase(t, seed)
		marks := marksOf(t, line, c.Line(t, func(Asked) byte { return NotCompared }))
		for j, a := range c.Asked {
			want := byte(No)
			switch {
			case a.Known != "":
				want = NotCompared
			case a.Allowed:
				want = Yes
			}
			if marks[j] != want {
				t.Fatalf("seed %d: %s/%s %v to %v, reached %v: Namegate %c, the reference %c\n%s",
					seed, a.From.Namespace, a.From.Name, a.Proto, a.Dialled, a.Reached, want, marks[j], c.World.Show(t))
			}
			compared[want]++
		}
	}
	if compared[Yes] < 10000 || compared[No] < 10000 {
		t.Errorf("the test asks too little: %v", compared)
	}
}

// TestDifferences: Namegate judges each known difference as it means to.
func TestDifferences(t *testing.T) {
	for _, d := range EachDifference(t) {
		if got, _ := d.World.Allows(t, compile.New().Compile(d.World.Input()), d.Flow); got != d.Allowed {
			t.Errorf("%s: allowed %v", d.Difference, got)
		}
	}
}

// TestSchema: the reader has a problem with what an API server refuses, and with no other
// policy but for the known cases.
func TestSchema(t *testing.T) {
	lines := Read(t, "testdata/schema.txt")
	var marks strings.Builder
	for i, ours := range SchemaLines(t, func(uint64, *unstructured.Unstructured) byte { return NotCompared }) {
		marks.WriteString(marksOf(t, lines[i], ours))
	}
	refused := 0
	for seed := range uint64(Policies) {
		o := ChangedPolicy(seed, func(*unstructured.Unstructured) {})
		was, problems := marks.String()[seed] == Yes, cnp.Read(o).Problems
		if was {
			refused++
		}
		if Agrees(was, problems) == "" {
			text, err := yaml.Marshal(o.Object["spec"])
			fatal.If(t, err)
			t.Errorf("seed %d: refused by an API server: %v; the reader: %v\n%s", seed, was, problems, text)
		}
	}
	if refused < 1000 || refused > Policies-1000 {
		t.Errorf("%d of %d policies are refused", refused, Policies)
	}
}
