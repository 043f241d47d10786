package nft_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestApplyAfterAFault: whichever of both tables' transactions was refused, and
// whether it was done or not, the next Apply makes the sets hold the state.
func TestApplyAfterAFault(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	next := nft.State{Selected: []netip.Addr{pod6}, Homes: []nft.Home{{Iface: "veth2", Addr: pod6}}, PortHomes: []nft.Home{{Iface: "port2", Addr: pod6}}, Ports: []string{"port2"}}
	clean := knftables.NewFake(knftables.InetFamily, nft.TableName)
	cleanBridge := knftables.NewFake(knftables.BridgeFamily, nft.TableName)
	twin := nft.New(clean, cleanBridge, bits)
	fatal.If(t, errors.Join(twin.Setup(ctx), twin.Apply(ctx, next)))
	for failAt := 5; failAt <= 6; failAt++ {
		for _, late := range []bool{false, true} {
			runs := 0
			inet := faulty{knftables.NewFake(knftables.InetFamily, nft.TableName), &runs, failAt, late}
			bridge := faulty{knftables.NewFake(knftables.BridgeFamily, nft.TableName), &runs, failAt, late}
			tables := nft.New(inet, bridge, bits)
			fatal.If(t, tables.Setup(ctx))
			fatal.If(t, tables.Apply(ctx, full))
			if err := tables.Apply(ctx, next); !errors.Is(err, errInjected) {
				t.Fatalf("transaction %d fails, and Apply says %v", failAt, err)
			}
			if err := tables.Apply(ctx, next); err != nil {
				t.Errorf("transaction %d failed (done: %v), and again: %v", failAt, late, err)
			}
			if diff := cmp.Diff(clean.Dump()+cleanBridge.Dump(), inet.Dump()+bridge.Dump()); diff != "" {
				t.Errorf("transaction %d failed (done: %v); after a retry (-want +got):\n%s", failAt, late, diff)
			}
		}
	}
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
