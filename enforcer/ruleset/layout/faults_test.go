package layout_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/diff"
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
	inet := faulty{fakeTable(layout.Inet), &runs, 3, false}
	tables := tablesOn(inet, fakeTable(layout.Bridge), fakeTable(layout.Net))
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	before := inet.Dump()
	tables.decideNamespace()
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
	net := faulty{fakeTable(layout.Net), &runs, 2, false}
	tables := tablesOn(fakeTable(layout.Inet), fakeTable(layout.Bridge), net)
	tables.decideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	tables.onlyAdmit(true)
	if err := tables.Apply(ctx, full); !errors.Is(err, errInjected) {
		t.Fatalf("the net stays, and Apply says %v", err)
	}
	fatal.If(t, tables.Apply(ctx, full))
	diff.Equal(t, "", net.Dump(), "after another Apply")
}

// TestRemovalBeginsWithTheNet: a removal that fails leaves no second net without the tables
// that admit.
func TestRemovalBeginsWithTheNet(t *testing.T) {
	t.Parallel()
	ctx, s, runs := context.Background(), subjects(), 0
	inet := faulty{fakeTable(layout.Inet), &runs, 0, false}
	net := fakeTable(layout.Net)
	tables := tablesOn(inet, fakeTable(layout.Bridge), net)
	tables.decideNamespace()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	inet.failAt = runs + 1
	failing := tablesOn(inet, fakeTable(layout.Bridge), net)
	if err := failing.Remove(ctx); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	if net.Table != nil && len(net.Table.Chains) > 0 || len(inet.Table.Chains) == 0 {
		t.Errorf("after a removal that failed:\n%s%s", net.Dump(), inet.Dump())
	}
}

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

// TestTheSwitchWhileTablesAreMadeAnew: a heartbeat that comes meanwhile is not lost, and a dead-man switch that
// ends meanwhile does not come back.
func TestTheSwitchWhileTablesAreMadeAnew(t *testing.T) {
	t.Parallel()
	ctx, inet, before := context.Background(), fakeTable(layout.Inet), (func())(nil)
	tables := tablesOn(hooked{inet, &before}, fakeTable(layout.Bridge), nil)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	for _, on := range []bool{true, false} {
		before = func() {
			tx := inet.NewTransaction()
			if tx.Flush(&knftables.Set{Name: "alive"}); on {
				tx.Add(&knftables.Element{Set: "alive", Key: []string{"53"}})
			}
			fatal.If(t, inet.Run(ctx, tx))
		}
		fatal.If(t, tables.Rewrite(ctx, full))
		if found, err := inet.ListElements(ctx, "set", "alive"); (len(found) > 0) != on || err != nil {
			t.Errorf("the switch has %d elements, %v; is it on: %t", len(found), err, on)
		}
	}
}

// TestEntriesThatChangeWhileALayoutDoes: an entry that is withdrawn while another layout replaces one
// does not come back, and one that is added then is not lost.
func TestEntriesThatChangeWhileALayoutDoes(t *testing.T) {
	t.Parallel()
	near4 := netip.MustParseAddr("198.51.100.8")
	ctx, s, before := context.Background(), named(), (func())(nil)
	tables := tablesOn(hooked{fakeTable(layout.Inet), &before}, fakeTable(layout.Bridge), fakeTable(layout.Net))
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	withdrawn, stays, added := entry(far4, time.Hour, "withdrawn", timed.Absent), entry(far6, time.Hour, "stays", timed.Absent), entry(near4, time.Hour, "added", timed.Absent)
	applied(t, tables, timed.Op{Set: "denied", Entries: []timed.Entry{withdrawn, stays}})
	tables.onlyAdmit(false) // another layout
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
	fatal.If(t, tables.Apply(ctx, layout.State{Entries: s.Entries}))
	if got, _ := listed(t, tables, "denied"); len(got["denied"]) != 1 {
		t.Errorf("later: %v", got)
	}
}
