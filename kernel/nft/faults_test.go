package nft_test

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

var errInjected = errors.New("the kernel is out of memory")

// faulty refuses one transaction, before or after it was done.
type faulty struct {
	*knftables.Fake
	runs   *int
	failAt int
	late   bool
}

func (f faulty) Run(ctx context.Context, tx *knftables.Transaction) error {
	*f.runs++
	if *f.runs != f.failAt {
		return f.Fake.Run(ctx, tx)
	}
	if f.late {
		if err := f.Fake.Run(ctx, tx); err != nil {
			return err
		}
	}
	return errInjected
}

// TestFailedReplacementKeepsTheTable: a table of another layout is made anew, without the entries that it holds,
// only where nft refuses to replace it in place, not after any other error.
func TestFailedReplacementKeepsTheTable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	runs := 0
	inet := faulty{knftables.NewFake(knftables.InetFamily, nft.TableName), &runs, 3, false}
	tables := nft.New(inet, knftables.NewFake(knftables.BridgeFamily, nft.TableName), bits)
	tables.UseNet(knftables.NewFake(knftables.InetFamily, nft.NetTableName))
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	before := inet.Dump()
	tables.AdmitCandidates()
	if err := tables.Apply(ctx, full); !errors.Is(err, errInjected) || inet.Dump() != before {
		t.Errorf("%v, after %d transactions:\n%s", err, runs, inet.Dump())
	}
	fatal.If(t, tables.Apply(ctx, full))
}

// TestNetThatStays: a second net that the kernel does not remove with the change of the layout
// goes with the next Apply. No state would change it any more, and it would deny for ever.
func TestNetThatStays(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	runs := 0
	net := faulty{knftables.NewFake(knftables.InetFamily, nft.NetTableName), &runs, 2, false}
	tables := ofFakes()
	tables.UseNet(net)
	tables.DecideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	tables.OnlyAdmit(true)
	if err := tables.Apply(ctx, full); !errors.Is(err, errInjected) {
		t.Fatalf("the net stays, and Apply says %v", err)
	}
	fatal.If(t, tables.Apply(ctx, full))
	if left := net.Dump(); left != "" {
		t.Errorf("after another Apply:\n%s", left)
	}
}
