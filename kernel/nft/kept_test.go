package nft_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// hooked calls a function before its next transaction.
type hooked struct {
	*knftables.Fake
	before *func()
}

func (h hooked) Run(ctx context.Context, tx *knftables.Transaction) error {
	if before := *h.before; before != nil {
		*h.before = nil
		before()
	}
	return h.Fake.Run(ctx, tx)
}

// TestEntriesThatChangeWhileALayoutDoes: an entry that is withdrawn while another layout replaces one
// does not come back, and one that is added then is not lost.
func TestEntriesThatChangeWhileALayoutDoes(t *testing.T) {
	t.Parallel()
	near4 := netip.MustParseAddr("198.51.100.8")
	ctx, s, before := context.Background(), named(), (func())(nil)
	tables := nft.New(hooked{knftables.NewFake(knftables.InetFamily, nft.TableName), &before}, knftables.NewFake(knftables.BridgeFamily, nft.TableName), bits)
	tables.UseNet(knftables.NewFake(knftables.InetFamily, nft.NetTableName))
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	withdrawn, stays, added := entry(far4, time.Hour, "withdrawn", timed.Absent), entry(far6, time.Hour, "stays", timed.Absent), entry(near4, time.Hour, "added", timed.Absent)
	applied(t, tables, timed.Op{Set: "denied", Entries: []timed.Entry{withdrawn, stays}})
	tables.OnlyAdmit(false) // another layout
	before = func() {
		applied(t, tables, timed.Op{Set: "denied", Remove: true, Entries: []timed.Entry{withdrawn}}, timed.Op{Set: "denied", Entries: []timed.Entry{added}})
	}
	fatal.If(t, tables.Apply(ctx, s))
	if before != nil {
		t.Fatal("no table was made anew")
	}
	want := map[string][]timed.Entry{"denied": {entry(near4, 0, "added", 0), entry(far6, 0, "stays", 0)}}
	if got, _ := listed(t, tables, "denied"); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
	applied(t, tables, timed.Op{Set: "denied", Remove: true, Entries: []timed.Entry{added}})
	fatal.If(t, tables.Apply(ctx, nft.State{Entries: s.Entries}))
	if got, _ := listed(t, tables, "denied"); len(got["denied"]) != 1 {
		t.Errorf("later: %v", got)
	}
}
