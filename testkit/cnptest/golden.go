package cnptest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// Clusters is of how many random clusters the golden file has the reference's answers.
	Clusters = 3000
	// flowsOfCluster is how many connections are asked about in each.
	flowsOfCluster = 40
	// Policies is of how many policies the golden file has an API server's answers.
	Policies = 5000
	// policiesOfLine is how many of them a line of the file has.
	policiesOfLine = 50
)

// Marks of the golden files.
const (
	Yes         = 'y' // allowed, or refused
	No          = 'n'
	NotCompared = '.' // a connection of a known difference
)

// Case is a random cluster.
type Case struct {
	World *World
	Asked []Asked
}

// Asked is a connection with Namegate's verdict, and the difference that makes the reference's
// another, "" for none.
type Asked struct {
	Flow
	Allowed bool
	Known   Difference
}

// NewCase makes the cluster of a seed, compiles it after another, and asks about connections.
func NewCase(t testing.TB, seed uint64) Case {
	t.Helper()
	g := &Maker{rand.New(rand.NewPCG(seed, 11))}
	c := Case{World: g.World()}
	compiler := compile.New()
	compiler.Compile((&Maker{rand.New(rand.NewPCG(seed-1, 11))}).World().Input()) // which leaves nothing behind
	s := compiler.Compile(c.World.Input())
	for _, p := range s.Problems {
		if p.Reason != policy.ReasonHostNetwork {
			t.Fatalf("seed %d: %+v", seed, p)
		}
	}
	for range flowsOfCluster {
		f, ok := g.Flow(c.World)
		if !ok {
			continue
		}
		allowed, asked := c.World.Allows(t, s, f)
		c.Asked = append(c.Asked, Asked{f, allowed, c.World.Known(f, asked)})
	}
	return c
}

// Line is the line of the golden file: a digest of the cluster and its connections, and a mark
// for each connection.
func (c Case) Line(t testing.TB, mark func(Asked) byte) string {
	t.Helper()
	h := fnv.New32a()
	fmt.Fprint(h, c.World.describe(t, json.Marshal))
	var marks []byte
	for _, a := range c.Asked {
		fmt.Fprintln(h, a.From.Namespace, a.From.Name, a.Proto, a.Dialled, a.Reached)
		marks = append(marks, mark(a))
	}
	return fmt.Sprintf("%08x %s", h.Sum32(), marks)
}

// ChangedPolicy makes the policy of a seed, which an API server lets in, and calls for it; then
// changes one value of it.
func ChangedPolicy(seed uint64, whole func(*unstructured.Unstructured)) *unstructured.Unstructured {
	g := &Maker{rand.New(rand.NewPCG(seed, 13))}
	o := g.CNP(0)
	whole(o)
	o.Object["spec"] = g.Perturb(o.Object["spec"])
	return o
}

// SchemaLines are the lines of the golden file of an API server's answers: a digest of policies,
// and a mark for each.
func SchemaLines(t testing.TB, mark func(seed uint64, o *unstructured.Unstructured) byte) (lines []string) {
	t.Helper()
	for first := uint64(0); first < Policies; first += policiesOfLine {
		h := fnv.New32a()
		var marks []byte
		for seed := first; seed < first+policiesOfLine; seed++ {
			o := ChangedPolicy(seed, func(*unstructured.Unstructured) {})
			text, err := json.Marshal(o.Object)
			fatal.If(t, err)
			_, _ = h.Write(text)
			marks = append(marks, mark(seed, o))
		}
		lines = append(lines, fmt.Sprintf("%08x %s", h.Sum32(), marks))
	}
	return lines
}

// Agrees tells what the reader's problems are to an API server's answer: the same, a known case
// of letIn, or "", which must not be.
func Agrees(refused bool, problems []policy.Problem) string {
	if refused == (problems != nil) {
		return fmt.Sprint("refused by both: ", refused)
	}
	text := fmt.Sprint(problems)
	if i := slices.IndexFunc(letIn, func(s string) bool { return strings.Contains(text, s) }); i >= 0 {
		return letIn[i]
	}
	return ""
}

// Read returns the lines of a golden file.
func Read(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	fatal.If(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
