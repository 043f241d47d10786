package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
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

// refusing is a program nft that runs nothing.
type refusing struct{ knftables.Interface }

func (refusing) Run(context.Context, *knftables.Transaction) error {
	return errors.New("the program nft was to run")
}

// TestElementsNeedNoProgram: the recheck set and the elements of both nets change without the
// program nft, which takes 30 ms and whose socket holds up other transactions as it closes.
func TestElementsNeedNoProgram(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	ctx := context.Background()
	tables, err := Open(Bits{Admitted: 0x40, Candidate: 0x20})
	fatal.If(t, err)
	t.Cleanup(tables.Close)
	tables.DecideNamespace()
	a, b := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, State{Selected: []netip.Addr{a}})))
	tables.inet, tables.net.table = refusing{tables.inet}, refusing{tables.net.table}

	for _, step := range []struct {
		remove      bool
		addrs, want []netip.Addr
	}{
		{false, []netip.Addr{a, b}, []netip.Addr{a, b}},
		{true, []netip.Addr{a, netip.MustParseAddr("10.1.0.9")}, []netip.Addr{b}}, // one is missing
	} {
		fatal.If(t, tables.ChangeRecheck(ctx, step.addrs, step.remove))
		got, err := tables.ListRecheck(ctx)
		if !slices.Equal(got, step.want) || err != nil {
			t.Errorf("the recheck set has %v, %v, want %v", got, err, step.want)
		}
	}
	for _, selected := range [][]netip.Addr{{a, b}, {b}} {
		s := State{Selected: selected, Recheck: []netip.Addr{b}}
		fatal.If(t, tables.Apply(ctx, s))
		var got []netip.Addr
		_, err := tables.readNet(ctx, &got)
		if !slices.Equal(got, selected) || err != nil {
			t.Errorf("the second net has %v, %v, want %v", got, err, selected)
		}
		if found, err := tables.Verify(ctx, s); len(found) > 0 || err != nil {
			t.Errorf("deviations %v, %v", found, err)
		}
	}
}
