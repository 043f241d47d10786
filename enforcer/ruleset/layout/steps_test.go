package layout_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/fatal"
)

// stepped tells of each transaction.
type stepped struct {
	*knftables.Fake
	step func(tx *knftables.Transaction)
}

func (f stepped) Run(ctx context.Context, tx *knftables.Transaction) error {
	f.step(tx)
	return f.Fake.Run(ctx, tx)
}

// TestChainsComeBeforeTheElementsThatLeadToThem: no step of a change leads subjects to a chain
// that it makes, and the steps together make all of it.
func TestChainsComeBeforeTheElementsThatLeadToThem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fake, led, n := fakeTable(layout.Inet), 0, 0
	step := func(tx *knftables.Transaction) {
		makes := map[string]bool{}
		for line := range strings.Lines(tx.String()) {
			words := strings.Fields(line)
			if words[0] == "add" && words[1] == "chain" {
				makes[words[4]] = fake.Table == nil || fake.Table.Chains[words[4]] == nil
			}
			if to := slices.Index(words, "goto"); words[0] == "add" && words[1] == "element" && to > 0 && n > 1 {
				led++
				if makes[words[to+1]] {
					t.Errorf("state %d: a step makes the chain that it leads to: %s", n, line)
				}
			}
		}
	}
	tables := tablesOn(stepped{fake, step}, fakeTable(layout.Bridge), fakeTable(layout.Net))
	tables.decideNamespace()
	fatal.If(t, tables.Setup(ctx))
	for _, kinds := range []int{5, 1, 2, 3, 2, 5} {
		n++ // the first state is written whole
		s := withSubjects(manyKinds(kinds), kinds)
		fatal.If(t, tables.Apply(ctx, s))
		verified(t, tables, s)
	}
	if led == 0 {
		t.Error("no element leads to a chain")
	}
}
