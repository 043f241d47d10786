package layout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// entryModel is what entry sets hold, by set, subject and address.
type entryModel map[string]map[[2]netip.Addr]timed.Entry

// random returns an op with the knowledge of what is there, or without it.
func (m entryModel) random(r *rand.Rand) (op timed.Op, wrong bool) {
	op = timed.Op{Set: []string{"denied", "allowed", "missing"}[r.IntN(20)%3], Remove: r.IntN(4) == 0}
	wrong = op.Set == "missing"
	used := map[netip.Addr]bool{}
	for range 1 + r.IntN(3)*r.IntN(60) {
		to := netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(100))})
		if r.IntN(2) == 0 {
			to = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(r.IntN(100))})
		}
		if used[to] {
			continue
		}
		used[to] = true
		e := entry(to, time.Hour+time.Duration(r.IntN(600))*time.Minute, fmt.Sprint("reason ", r.IntN(3)), timed.Held(r.IntN(2)))
		if was, there := m[op.Set][[2]netip.Addr{e.Subject, to}]; there && was.Comment == e.Comment {
			e.Held = timed.Held(r.IntN(3))
		}
		if r.IntN(500) == 0 {
			e.Comment, wrong = strings.Repeat("c", timed.MaxComment+1), true
		}
		op.Entries = append(op.Entries, e)
	}
	return op, wrong
}

// removeKeys removes keys that are not held.
func removeKeys(t *testing.T, tables *stateTables, held map[[2]netip.Addr]bool) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = tables.RemoveKeys(func(subject, a netip.Addr) bool { return held[[2]netip.Addr{subject, a}] })
		fatal.If(t, err)
	}
}

// TestEntryOpsEqualAModel: whatever the ops say of what is there, and whichever of them are
// refused, the sets hold what the others say, and the keys are those of live entries.
func TestEntryOpsEqualAModel(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, tables *stateTables) {
		ctx := context.Background()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, named())))
		model := entryModel{"denied": {}, "allowed": {}}
		for batch := range 60 {
			if batch == 20 { // later ones are refreshed in place
				fatal.If(t, errors.Join(tables.Heartbeat(ctx), tables.Heartbeat(ctx)))
			}
			var ops []timed.Op
			var wrong []bool
			for range 1 + r.IntN(3)*r.IntN(10) {
				op, is := model.random(r)
				ops, wrong = append(ops, op), append(wrong, is)
				for _, e := range op.Entries {
					if key := [2]netip.Addr{e.Subject, e.Addr}; is {
						continue
					} else if op.Remove {
						delete(model[op.Set], key)
					} else {
						e.Held = 0
						model[op.Set][key] = e
					}
				}
			}
			tables.ApplyEntries(ops)
			for i, op := range ops {
				if (op.Err != nil) != wrong[i] || op.Err != nil && timed.IsNoSet(op.Err) != (op.Set == "missing" && !strings.Contains(op.Err.Error(), "comment")) {
					t.Fatalf("batch %d, op %d of set %s, remove %v: %v", batch, i, op.Set, op.Remove, op.Err)
				}
			}
			got := entryModel{"denied": {}, "allowed": {}}
			fatal.If(t, tables.ListEntries(slices.Collect(maps.Keys(model)), func(set string, part []timed.Entry) {
				for _, e := range part {
					key := [2]netip.Addr{e.Subject, e.Addr}
					want := model[set][key].Timeout
					if e.Timeout <= want && e.Timeout > want-time.Minute {
						e.Timeout = want
					}
					got[set][key] = e
				}
			}))
			for set := range model {
				if !maps.Equal(got[set], model[set]) {
					t.Fatalf("batch %d: set %s holds\n%v\nwant\n%v", batch, set, got[set], model[set])
				}
			}
			want, keys := map[[2]netip.Addr]bool{}, map[[2]netip.Addr]bool{}
			for _, of := range model {
				for k := range of {
					want[k] = true
				}
			}
			removeKeys(t, tables, want)
			found, err := tables.Tables.Elements(ctx, layout.Inet, &nft.Set{Name: "named4", Key: "ipv4_addr . ipv4_addr"}, &nft.Set{Name: "named6", Key: "ipv6_addr . ipv6_addr"})
			fatal.If(t, err)
			for _, k := range found {
				keys[[2]netip.Addr{netip.MustParseAddr(k.Key[0]), netip.MustParseAddr(k.Key[1])}] = true
			}
			if !maps.Equal(keys, want) {
				t.Fatalf("batch %d: %d keys, %d of live entries", batch, len(keys), len(want))
			}
		}
	})
}

// TestRefreshedEntriesStay: where the kernel can, only the deadline of an entry moves.
func TestRefreshedEntriesStay(t *testing.T) {
	t.Parallel()
	tables := written(t, named())
	fatal.If(t, errors.Join(tables.Heartbeat(t.Context()), tables.Heartbeat(t.Context())))
	write := func(timeout time.Duration, held timed.Held) {
		t.Helper()
		applied(t, tables, timed.Op{Set: "denied", Entries: []timed.Entry{entry(far4, timeout, "reason", held), entry(far6, timeout, "reason", held)}})
	}
	write(time.Minute, timed.Absent)
	changes, stop := monitor(t)
	write(time.Hour, timed.SameComment)
	stop()
	if said := changes(); updatesInPlace(t) && strings.Contains(said, "delete") {
		t.Errorf("a refresh deletes:\n%s", said)
	}
	got, least := listed(t, tables, "denied")
	if want := []timed.Entry{entry(far4, 0, "reason", 0), entry(far6, 0, "reason", 0)}; !slices.Equal(got["denied"], want) || least < 50*time.Minute {
		t.Errorf("%v, %v left", got, least)
	}
	// The same timeout counts from now on.
	aged := func(than time.Duration) bool { _, least := listed(t, tables, "denied"); return least < than }
	fatal.Await(t, "the entries age", func() bool { return aged(time.Hour - 300*time.Millisecond) })
	fatal.Await(t, "a refresh with the same timeout moves the deadline", func() bool {
		write(time.Hour, timed.SameComment)
		return !aged(time.Hour - 300*time.Millisecond)
	})
}

// TestTransactionsOfEntries: entries that are new wait for no deletion.
func TestTransactionsOfEntries(t *testing.T) {
	t.Parallel()
	tables := written(t, named())
	op := func(n int, held timed.Held) timed.Op {
		return timed.Op{Set: []string{"denied", "allowed"}[n%2], Entries: []timed.Entry{entry(netip.AddrFrom4([4]byte{100, 0, 0, byte(n)}), time.Hour, "", held)}}
	}
	var fresh, mixed []timed.Op
	for n := range 100 {
		fresh, mixed = append(fresh, op(n, timed.Absent)), append(mixed, op(n, timed.Unknown))
	}
	mixed = slices.Insert(mixed, 0, op(100, timed.Absent), op(101, timed.Absent))
	mixed = append(slices.Insert(mixed, 50, op(102, timed.Absent)), op(103, timed.Absent))
	for _, test := range []struct {
		ops  []timed.Op
		want []string // what the first and the second transaction may not say, and say
	}{{fresh, []string{"delete"}}, {mixed, []string{"delete", "none"}}} {
		changes, stop := monitor(t)
		applied(t, tables, test.ops...)
		stop()
		parts := strings.Split(changes(), "# new generation")
		var with []string
		for _, p := range parts {
			if strings.Contains(p, "entries-") {
				with = append(with, p)
			}
		}
		diff.MustEqual(t, len(test.want), len(with), "transactions")
		for i, not := range test.want {
			if strings.Contains(with[i], not) {
				t.Errorf("transaction %d deletes", i)
			}
		}
	}
}

// TestEntrySetsAreRepaired: what another program does to entry sets is found and repaired,
// and costs no entry of another set.
func TestEntrySetsAreRepaired(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	written(t, named())
	front := led(ruleset(t), "10.1.0.5")
	bare := regexp.MustCompile("ct state untracked goto (part-[0-9a-f]+)").FindStringSubmatch(ruleset(t))[1]
	unused := "flush chain inet namegate " + front + "\nflush chain inet namegate " + bare + "\n"
	for rival, object := range map[string]string{
		unused + "delete set inet namegate entries-denied-4": "nft set inet namegate entries-denied-4",
		unused + "delete set inet namegate entries-denied-6\nadd set inet namegate entries-denied-6 { type ipv6_addr . ipv6_addr; flags dynamic,timeout; }":                            "nft set inet namegate entries-denied-6",
		unused + "delete set inet namegate entries-denied-4\nadd set inet namegate entries-denied-4 { type inet_proto . ipv4_addr; flags timeout; elements = { tcp . 192.0.2.1 }; }\n": "nft set inet namegate entries-denied-4",
		"add set inet namegate entries-other-4 { type ipv4_addr . ipv4_addr; flags timeout; }":                                                                                         "nft set inet namegate entries-other-4",
		"add chain inet namegate theirs":                   "nft chain inet namegate theirs",
		"flush chain inet namegate " + bare:                "nft chain inet namegate " + bare,
		"flush set inet namegate named4":                   "nft set inet namegate named4",
		"add table inet namegate { flags dormant; }":       "nft table inet namegate",
		"add set inet namegate theirs { type ipv4_addr; }": "nft set inet namegate theirs",
	} {
		s := named()
		tables := written(t, s)
		before := sortedLines(ruleset(t))
		long := strings.Repeat("c", timed.MaxComment)
		applied(t, tables, timed.Op{Set: "denied", Entries: []timed.Entry{entry(far4, time.Hour, `a "reason"`, timed.Absent)}},
			timed.Op{Set: "allowed", Entries: []timed.Entry{entry(far4, time.Hour, "", timed.Absent), entry(far6, time.Hour, long, timed.Absent)}})
		piped(t, rival)
		if found, err := tables.Verify(ctx, s); err != nil || !slices.Contains(found, object) {
			t.Errorf("after nft %s: deviations %q, %v; want %q among them", rival, found, err, object)
		}
		fatal.If(t, tables.Apply(ctx, s))
		verified(t, tables, s)
		got, least := listed(t, tables, "denied", "allowed")
		want := map[string][]timed.Entry{"denied": {entry(far4, 0, `a "reason"`, 0)}, "allowed": {entry(far4, 0, "", 0), entry(far6, 0, long, 0)}}
		if strings.Contains(rival, "delete set inet namegate entries-denied-4") {
			delete(want, "denied")
		}
		if !maps.EqualFunc(got, want, slices.Equal) || least < 50*time.Minute || least > time.Hour {
			t.Errorf("after nft %s and a repair: %v, %v left, want %v", rival, got, least, want)
		}
		for set, all := range want {
			applied(t, tables, timed.Op{Set: set, Remove: true, Entries: all})
		}
		next := laterAgent(t) // which finds the keys that this one left
		fatal.If(t, errors.Join(next.Setup(ctx), next.Apply(ctx, s)))
		removeKeys(t, next, nil)
		verified(t, next, s)
		if now := sortedLines(ruleset(t)); !slices.Equal(now, before) {
			t.Errorf("after nft %s and a repair:\n%q\nwant\n%q", rival, now, before)
		}
	}
}

// TestEntriesOfTwoAgentsOutliveALayout: the earlier agent writes entries while the next one
// replaces its tables. None that it was told to be written is lost.
func TestEntriesOfTwoAgentsOutliveALayout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	earlier, s := inKernel(t), named()
	s.GrantSets = []layout.GrantSet{{Name: "0123456789ab-any"}}
	earlier.decideNamespace()
	fatal.If(t, errors.Join(earlier.Setup(ctx), earlier.Apply(ctx, s)))
	added := map[string]map[netip.Addr]bool{"allowed": {}, s.GrantSets[0].Name: {}}
	write := func(n int) error {
		for set, all := range added {
			a := netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
			en := entry(a, time.Hour, "reason", timed.Absent)
			if set != "allowed" {
				en = timed.Entry{Addr: a, Timeout: time.Hour, Comment: "reason"}
			}
			ops := []timed.Op{{Set: set, Grants: set != "allowed", Entries: []timed.Entry{en}}}
			if earlier.ApplyEntries(ops); ops[0].Err != nil {
				return ops[0].Err
			}
			all[a] = true
		}
		return nil
	}
	n := 0
	for ; n < 100; n++ {
		fatal.If(t, write(n))
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	fatal.If(t, err)
	defer namespace.Close()
	over, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- netns.Do("the test's", namespace, func() error {
			for ; ; n++ {
				select {
				case <-over:
					return nil
				default:
				}
				if err := write(n); err != nil {
					return err
				}
			}
		})
	}()
	next := laterAgent(t)
	next.admitCandidates()
	fatal.If(t, errors.Join(next.Setup(ctx), next.Apply(ctx, s)))
	close(over)
	fatal.If(t, <-ended)
	each := func(set string, part []timed.Entry) {
		for _, e := range part {
			if e.Comment == "reason" && e.Timeout <= time.Hour && e.Timeout > 50*time.Minute {
				delete(added[set], e.Addr)
			}
		}
	}
	fatal.If(t, errors.Join(next.ListEntries([]string{"allowed"}, each), next.ListGrants([]string{s.GrantSets[0].Name}, each)))
	for set, lost := range added {
		if len(lost) > 0 {
			t.Errorf("%d of %d entries of %s are lost", len(lost), n, set)
		}
	}
	verified(t, next, s)
}
