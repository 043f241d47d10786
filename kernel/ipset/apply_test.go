package ipset_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

func ensure(t testing.TB, i ipset.Interface, sets ...ipset.Set) {
	t.Helper()
	for _, s := range sets {
		fatal.If(t, i.Ensure(s))
	}
}

func grants(name string) ipset.Set {
	return ipset.Set{Name: name, Type: ipset.HashIP, Timeout: true, Comment: true}
}

func entry(a string) ipset.Entry {
	return ipset.Entry{Addr: netip.MustParseAddr(a), Timeout: time.Hour, Comment: "of " + a}
}

// addresses returns the content of a set, sorted, as text.
func addresses(t *testing.T, i ipset.Interface, name string) string {
	t.Helper()
	var out []string
	for _, e := range sorted(t, i, name) {
		out = append(out, e.Addr.String())
	}
	return strings.Join(out, " ")
}

func TestApplyTellsOfEachOp(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		six := grants("six")
		six.IPv6 = true
		ensure(t, i, grants("a"), grants("b"), six)
		ops := []ipset.Op{
			{Set: "a", Entries: []ipset.Entry{entry("192.0.2.1"), entry("192.0.2.2")}},
			{Set: "missing", Entries: []ipset.Entry{entry("192.0.2.3")}},
			{Set: "b", Entries: []ipset.Entry{entry("192.0.2.4")}},
			{Set: "six", Entries: []ipset.Entry{entry("192.0.2.5")}},
			{Set: "missing", Delete: true, Entries: []ipset.Entry{entry("192.0.2.3")}},
			{Set: "six", Entries: []ipset.Entry{entry("2001:db8::1")}},
			{Set: "a", Delete: true, Entries: []ipset.Entry{entry("192.0.2.1"), entry("192.0.2.99")}},
			{Set: "missing too", Err: errors.New("of before")},
			{Set: "b", Entries: []ipset.Entry{entry("192.0.2.6")}, Err: errors.New("of before")},
		}
		for round := range 2 { // the second time all is there or gone already
			i.Apply(ops)
			for n, what := range []string{"", "not found", "", "refused", "not found", "", "", "", ""} {
				err := ops[n].Err
				if bad := what == "" && err != nil || what == "not found" && !ipset.IsNotFound(err) || what == "refused" && (err == nil || ipset.IsNotFound(err)); bad {
					t.Errorf("round %d, op %d: %v, want %q", round, n, err, what)
				}
			}
			got := []string{addresses(t, i, "a"), addresses(t, i, "b"), addresses(t, i, "six")}
			diff.Error(t, []string{"192.0.2.2", "192.0.2.4 192.0.2.6", "2001:db8::1"}, got, "round", round)
		}
		diff.Equal(t, "of 192.0.2.2", sorted(t, i, "a")[0].Comment, "comment")
		i.Apply(nil)
	})
}

func isFull(err error) bool { return err != nil && strings.HasSuffix(err.Error(), ": the set is full") }

func TestAFullSetAmongOthers(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		full := grants("full")
		full.MaxElem, full.HashSize = 1, 64
		ensure(t, i, grants("a"), full, grants("b"))
		var many []ipset.Entry
		a := netip.MustParseAddr("198.18.0.0")
		for range 500 {
			many, a = append(many, ipset.Entry{Addr: a, Timeout: time.Hour}), a.Next()
		}
		ops := []ipset.Op{{Set: "a", Entries: many}, {Set: "full", Entries: many}, {Set: "b", Entries: many}}
		i.Apply(ops)
		if ops[0].Err != nil || !isFull(ops[1].Err) || ops[2].Err != nil {
			t.Errorf("%v, %v, %v", ops[0].Err, ops[1].Err, ops[2].Err)
		}
		if len(sorted(t, i, "a")) != 500 || len(sorted(t, i, "b")) != 500 {
			t.Error("a full set held up the others")
		}
	})
}

// More than one write takes, by messages and by bytes, with errors in all of them.
func TestApplyBeyondOneWrite(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		ensure(t, i, grants("a"), grants("b"))
		var ops []ipset.Op
		a := netip.MustParseAddr("198.18.0.0")
		for n := range 1000 {
			op := ipset.Op{Set: []string{"a", "missing", "b"}[n%3]}
			for range 1 + n%5*n%70 {
				op.Entries = append(op.Entries, ipset.Entry{Addr: a, Timeout: time.Hour, Comment: strings.Repeat("c", n%ipset.CommentLengthMax)})
				a = a.Next()
			}
			ops = append(ops, op)
		}
		i.Apply(ops)
		want := map[string]int{}
		for n, op := range ops {
			want[op.Set] += len(op.Entries)
			if ipset.IsNotFound(op.Err) != (op.Set == "missing") || op.Set != "missing" && op.Err != nil {
				t.Fatalf("op %d on %s: %v", n, op.Set, op.Err)
			}
		}
		sizes, err := i.Sizes()
		if err != nil || sizes["a"] != want["a"] || sizes["b"] != want["b"] {
			t.Errorf("sizes %v, %v; want %v", sizes, err, want)
		}
	})
}

// Random ops on the kernel and on the fake: the same errors, the same entries.
func TestApplyTwins(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	type result struct{ Errs, Sets []string }
	var results []result
	both(t, func(t *testing.T, i ipset.Interface) {
		r := rand.New(rand.NewPCG(seed, 0))
		ensure(t, i, grants("s0"), grants("s1"), grants("s2"))
		var out result
		for range 40 {
			var ops []ipset.Op
			for range r.IntN(20) {
				op := ipset.Op{Set: fmt.Sprint("s", r.IntN(4)), Delete: r.IntN(3) == 0}
				for range r.IntN(4) {
					op.Entries = append(op.Entries, entry(fmt.Sprintf("192.0.2.%d", r.IntN(30))))
				}
				ops = append(ops, op)
			}
			i.Apply(ops)
			for _, op := range ops {
				out.Errs = append(out.Errs, fmt.Sprint(op.Err))
			}
			for n := range 3 {
				out.Sets = append(out.Sets, addresses(t, i, fmt.Sprint("s", n)))
			}
		}
		results = append(results, out)
	})
	if diff := cmp.Diff(results[0], results[1]); diff != "" || !slices.Contains(results[0].Errs, "ipset add s3: no such set") {
		t.Errorf("the fake is not as the kernel (-kernel +fake):\n%s", diff)
	}
}

func TestApplyFromManyGoroutines(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		var wait sync.WaitGroup
		for n := range 8 {
			name := fmt.Sprint("s", n)
			ensure(t, i, grants(name))
			wait.Go(func() {
				for m := range 50 {
					ops := []ipset.Op{
						{Set: name, Entries: []ipset.Entry{entry(fmt.Sprintf("192.0.2.%d", m))}},
						{Set: "missing " + name, Entries: []ipset.Entry{entry("192.0.2.1")}},
					}
					i.Apply(ops)
					if ops[0].Err != nil || !ipset.IsNotFound(ops[1].Err) {
						t.Errorf("%v and %v", ops[0].Err, ops[1].Err)
					}
				}
			})
		}
		wait.Wait()
		for n := range 8 {
			diff.Equal(t, 50, len(sorted(t, i, fmt.Sprint("s", n))), "set", n)
		}
	})
}

func TestAClosedSocketIsAnErrorOfEachOp(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	k, err := ipset.Open()
	fatal.If(t, err)
	ensure(t, k, grants("a"))
	k.Close()
	ops := []ipset.Op{{Set: "a", Entries: []ipset.Entry{entry("192.0.2.1")}}, {Set: "a"}, {Set: "a", Delete: true, Entries: []ipset.Entry{entry("192.0.2.1")}}}
	k.Apply(ops)
	if !errors.Is(ops[0].Err, syscall.EBADF) || ops[1].Err != nil || !errors.Is(ops[2].Err, syscall.EBADF) {
		t.Errorf("%v, %v, %v", ops[0].Err, ops[1].Err, ops[2].Err)
	}
}

// As many errors as one write can have, with the longest texts: none is lost.
func TestEveryOpRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		ops := make([]ipset.Op, 1000)
		for n := range ops {
			ops[n] = ipset.Op{Set: strings.Repeat("m", ipset.NameLengthMax), Entries: []ipset.Entry{{Addr: v4, Comment: strings.Repeat("c", n%ipset.CommentLengthMax)}}}
		}
		i.Apply(ops)
		for n, op := range ops {
			if !ipset.IsNotFound(op.Err) {
				t.Fatalf("op %d: %v", n, op.Err)
			}
		}
	})
}
