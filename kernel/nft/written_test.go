package nft_test

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestRemovalBeginsWithTheNet: a removal that fails leaves no second net without the tables
// that admit.
func TestRemovalBeginsWithTheNet(t *testing.T) {
	t.Parallel()
	ctx, s, runs := context.Background(), subjects(), 0
	inet := faulty{knftables.NewFake(knftables.InetFamily, nft.TableName), &runs, 0, false}
	net := knftables.NewFake(knftables.InetFamily, nft.NetTableName)
	tables := nft.New(inet, knftables.NewFake(knftables.BridgeFamily, nft.TableName), bits)
	tables.UseNet(net)
	tables.DecideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	inet.failAt = runs + 1
	failing := nft.New(inet, knftables.NewFake(knftables.BridgeFamily, nft.TableName), bits)
	failing.UseNet(net)
	if err := failing.Remove(ctx); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	if net.Table != nil && len(net.Table.Chains) > 0 || len(inet.Table.Chains) == 0 {
		t.Errorf("after a removal that failed:\n%s%s", net.Dump(), inet.Dump())
	}
}
