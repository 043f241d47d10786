package nft

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestChainsComeBeforeTheElementsThatLeadToThem: no step of a change leads subjects to a chain
// that it makes, and the steps together make all of it.
func TestChainsComeBeforeTheElementsThatLeadToThem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := New(knftables.NewFake(knftables.InetFamily, TableName), knftables.NewFake(knftables.BridgeFamily, TableName), Bits{Admitted: 0x40, Candidate: 0x20})
	tables.UseNet(knftables.NewFake(knftables.InetFamily, NetTableName))
	tables.DecideNamespace()
	fatal.If(t, tables.Setup(ctx))
	led := 0
	for _, n := range []int{5, 1, 2, 3, 2, 5} {
		s := withSubjects(manyKinds(n), n)
		tiers := s.tierObjects(tables.tiers)
		for _, c := range tables.differences(tiers, s.elements(tiers)) {
			chains, elements := len(c.added.chains), len(c.fresh)+len(c.gone)
			for _, step := range c.steps() {
				makes := map[string]bool{}
				for _, chain := range step.added.chains {
					_, there := c.there[chain.name]
					makes["goto "+chain.name] = !there
				}
				for _, e := range step.fresh {
					to := strings.Join(e.Value, " ")
					if makes[to] {
						t.Errorf("state %d: a step makes the chain that it leads to: %s", n, to)
					}
					if strings.HasPrefix(to, "goto ") {
						led++
					}
				}
				chains, elements = chains-len(step.added.chains), elements-len(step.fresh)-len(step.gone)
			}
			if chains != 0 || elements != 0 {
				t.Errorf("state %d: the steps lack %d chains and %d elements", n, chains, elements)
			}
		}
		fatal.If(t, tables.Apply(ctx, s))
		if found, err := tables.Verify(ctx, s); err != nil || len(found) > 0 {
			t.Errorf("state %d: deviations %q, %v", n, found, err)
		}
	}
	if led == 0 {
		t.Error("no element leads to a chain")
	}
}
