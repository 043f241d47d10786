package layout_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// commits has another program change a table of its own all the time, until stop. next waits for one more change.
func commits(t *testing.T) (next, stop func()) {
	conn, err := nftables.New(nftables.AsLasting())
	fatal.If(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "busy"})
	set := &nftables.Set{Table: table, Name: "elements", KeyType: nftables.TypeInteger}
	fatal.If(t, errors.Join(conn.AddSet(set, nil), conn.Flush()))
	over, changed := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(changed)
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case changed <- struct{}{}:
			case <-time.After(200 * time.Microsecond):
			}
			element := nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, uint32(n))}
			if err := errors.Join(conn.SetAddElements(set, []nftables.SetElement{element}), conn.Flush()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { <-changed; <-changed }, func() {
		close(over)
		work.Wait()
		_ = conn.CloseLasting()
	}
}

// TestListingsWhileOthersCommit: entries end all the time, and another program changes
// nftables during each listing. Each has all entries that have not ended.
func TestListingsWhileOthersCommit(t *testing.T) {
	t.Parallel()
	tables := written(t, named())
	const count, tick = 4000, 10 * time.Millisecond // the kernel counts timeouts in jiffies, 100 a second at least
	op := timed.Op{Set: "allowed"}
	ends := map[netip.Addr]time.Time{}
	began := time.Now()
	for i := range count {
		a, left := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 2*time.Second+time.Duration(i)*2*time.Millisecond
		op.Entries = append(op.Entries, entry(a, left, "reason", timed.Absent))
		ends[a] = began.Add(left)
	}
	applied(t, tables, op)
	next, stop := commits(t)
	defer stop()
	for listings := 0; time.Since(began) < 6*time.Second; listings++ {
		next()
		all, _ := listed(t, tables, "allowed")
		now := time.Now()
		for _, e := range all["allowed"] {
			delete(ends, e.Addr)
		}
		for a, end := range ends {
			if end.After(now.Add(tick)) {
				t.Fatalf("listing %d lacks %s, which lives for %v", listings, a, end.Sub(now))
			}
		}
		clear(ends)
		for i := range count {
			ends[op.Entries[i].Addr] = began.Add(op.Entries[i].Timeout)
		}
	}
}

// TestListingsWhileTheKernelResizes: a listing just behind a change has all entries, each
// once, while the kernel makes the set's hash table larger or smaller.
func TestListingsWhileTheKernelResizes(t *testing.T) {
	t.Parallel()
	tables := written(t, named())
	add := timed.Op{Set: "allowed"}
	for i := range 3000 {
		add.Entries = append(add.Entries, entry(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), time.Hour, "reason", timed.Absent))
	}
	const stay = 800
	remove := timed.Op{Set: "allowed", Remove: true, Entries: add.Entries[stay:]}
	for round := range 40 {
		for _, step := range []struct {
			op   timed.Op
			want int
		}{{add, len(add.Entries)}, {remove, stay}} {
			applied(t, tables, step.op)
			all, _ := listed(t, tables, "allowed")
			if got := all["allowed"]; len(got) != step.want || len(slices.Compact(got)) != step.want {
				t.Fatalf("round %d: %d entries, %d of them distinct, want %d", round, len(got), len(slices.Compact(got)), step.want)
			}
		}
		applied(t, tables, timed.Op{Set: "allowed", Remove: true, Entries: add.Entries[:stay]})
	}
}

// comingEntries calls a function after each listing of a set.
type comingEntries struct {
	knftables.Interface
	listed func(set string)
}

func (c comingEntries) ListElements(ctx context.Context, kind, set string) ([]*knftables.Element, error) {
	all, err := c.Interface.ListElements(ctx, kind, set)
	c.listed(set)
	return all, err
}

// TestEntriesThatComeDuringVerify: an entry that is written after the keys of entries are
// listed, and before the entries are, is as wanted.
func TestEntriesThatComeDuringVerify(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var tables *stateTables
	came := 0
	inet := comingEntries{knftables.NewFake(knftables.InetFamily, layout.TableName), func(set string) {
		if set == "named4" && came < 100 {
			came++
			applied(t, tables, timed.Op{Set: "denied", Entries: []timed.Entry{entry(netip.AddrFrom4([4]byte{10, 2, 0, byte(came)}), time.Hour, "reason", timed.Absent)}})
		}
	}}
	tables = tablesOn(inet, fakeTable(layout.Bridge), nil)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, named())))
	for range 30 {
		verified(t, tables, named())
	}
	if came == 0 {
		t.Error("no entry came: this proves nothing")
	}
}
