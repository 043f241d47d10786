package nft

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// TestFlowtables: a flow table as the kernel lists it, from before and after there were prefixes of
// devices.
func TestFlowtables(t *testing.T) {
	t.Parallel()
	b := nfattr.AppendString(nfattr.AppendString(nil, flowtableTable, "router"), flowtableName, "fast")
	b, hook := nfattr.Begin(b, flowtableHook)
	b = nfattr.AppendUint32(nfattr.AppendUint32(b, 1, 0), 2, 0)
	b, devices := nfattr.Begin(b, flowtableHookDevs)
	b = nfattr.AppendString(nfattr.AppendString(nfattr.AppendString(b, deviceName, "eth0"), deviceName, "veth5"), devicePrefix, "cali")
	nfattr.End(b, devices)
	nfattr.End(b, hook)
	f := parseFlowtable("inet", b)
	if f.String() != "inet router fast" || !slices.Equal(f.Devices, []string{"eth0", "veth5", "cali*"}) {
		t.Errorf("%s with %q", f, f.Devices)
	}
	netns.Own(t)
	tables, err := Open(oursID)
	fatal.If(t, err)
	if all, err := tables.Flowtables(); len(all) > 0 || err != nil {
		t.Errorf("flow tables of a new namespace: %v, %v", all, err)
	}
}

// TestMessagesOfTheProgramAreBounded, and tell what knftables finds in them.
func TestMessagesOfTheProgramAreBounded(t *testing.T) {
	t.Parallel()
	p := program{knftables.NewFake(knftables.InetFamily, "ours")}
	tx := p.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Set{Name: strings.Repeat("long", 10_000)})
	err := p.Run(context.Background(), tx)
	if !knftables.IsNotFound(err) || len(err.Error()) > refusalBytes+3 || len(errors.Unwrap(err).Error()) < 10_000 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

var oursID, guardID = ID{"inet", "ours"}, ID{"inet", "guard"}

// ours is a table with a set, and guard one that is a guard.
func ours(words ...string) Table { return tableWith(oursID, false, words) }

func guard(words ...string) Table { return tableWith(guardID, true, words) }

func tableWith(id ID, isGuard bool, words []string) Table {
	w := Table{Layout: NewLayout(Layout{ID: id, Guard: isGuard, Sets: []*Set{addresses}, Chains: []*Chain{NewChain("c", "", nil, "ip saddr @addresses accept")}}), Elements: Elements{}}
	for _, word := range words {
		w.Elements.Add(addresses.Name, word)
	}
	w.Elements.Sorted()
	return w
}

var addresses = &Set{Name: "addresses", Key: "ipv4_addr"}

// refusing is a program nft that runs nothing.
type refusing struct{ knftables.Interface }

func (refusing) Run(context.Context, *knftables.Transaction) error {
	return errors.New("the program nft was to run")
}

// TestElementsNeedNoProgram: the elements of tables and of guards change, ahead of a content too, without the
// program nft, which takes 30 ms and whose socket holds up other transactions as it closes.
func TestElementsNeedNoProgram(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	ctx := context.Background()
	tables, err := Open(oursID, guardID)
	fatal.If(t, err)
	t.Cleanup(tables.Close)
	a, b := "10.1.0.1", "10.1.0.2"
	fatal.If(t, errors.Join(tables.Setup(ctx, []Table{ours(), guard()}), tables.Apply(ctx, []Table{ours(), guard(a)})))
	for id, table := range tables.all {
		tables.all[id] = refusing{table}
	}
	has := func(id ID, want ...string) {
		t.Helper()
		found, err := tables.Elements(ctx, id, addresses)
		var got []string
		for _, e := range found {
			got = append(got, e.Key...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("%s has %v, %v, want %v", id, got, err, want)
		}
	}
	fatal.If(t, tables.ChangeElements(ctx, oursID, ours(a, b).Elements, false))
	has(oursID, a, b)
	fatal.If(t, tables.ChangeElements(ctx, oursID, ours(a, "10.1.0.9").Elements, true)) // one is missing
	has(oursID, b)
	for _, in := range [][]string{{a, b}, {b}} {
		want := []Table{ours(b), guard(in...)}
		fatal.If(t, tables.Apply(ctx, want))
		has(guardID, in...)
		if found, err := tables.Verify(ctx, want); len(found) > 0 || err != nil {
			t.Errorf("deviations %v, %v", found, err)
		}
	}
	fatal.If(t, tables.Empty(ctx, addresses))
	has(oursID)
}
