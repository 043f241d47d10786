package nft_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestListsOfOneText: one rule on two ports and two rules on one port each read the same in
// nft's words. The lists come and go together: a chain that went twice would be refused.
func TestListsOfOneText(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, nft.State{})))
	tcp, udp := nft.PortRange{Protocol: "tcp", First: 80, Last: 80}, nft.PortRange{Protocol: "udp", First: 80, Last: 80}
	other := netip.MustParseAddr("10.1.0.6")
	s := nft.State{Selected: []netip.Addr{pod4, other}, Tiers: []nft.Tiers{
		{ID: "one", Subjects: []netip.Addr{pod4}, Baseline: []*nft.TierRule{{Ports: []nft.PortRange{tcp, udp}, Action: nft.Reject}}},
		{ID: "two", Subjects: []netip.Addr{other}, Baseline: []*nft.TierRule{{Ports: []nft.PortRange{tcp}, Action: nft.Reject}, {Ports: []nft.PortRange{udp}, Action: nft.Reject}}},
	}}
	for _, next := range []nft.State{s, {}} {
		if err := tables.Apply(ctx, next); err != nil {
			t.Errorf("%d lists: %v", len(next.Tiers), err)
		}
		verified(t, tables, next)
	}
}
