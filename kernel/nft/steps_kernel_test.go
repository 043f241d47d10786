package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

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
