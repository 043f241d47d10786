package xtables

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// TestCheck: sets and rules of both families are tried, and nothing of it stays, also after
// an error.
func TestCheck(t *testing.T) {
	refused := errors.New("the match is not there")
	for name, c := range map[string]struct {
		fails iptables.Family
		want  []string
	}{
		"all there": {0, []string{"NG4-probe", "NG6-probe"}},
		"no IPv4":   {iptables.IPv4, []string{"NG4-probe"}},
		"no IPv6":   {iptables.IPv6, []string{"NG4-probe", "NG6-probe"}},
	} {
		sets := ipset.NewFake(nil)
		var asked []string
		err := Check(context.Background(), sets, func(_ context.Context, f iptables.Family, set string) error {
			asked = append(asked, set)
			if names, _ := sets.Names(); !slices.Equal(names, []string{set}) {
				t.Errorf("%s: %s is asked, there are %q", name, set, names)
			}
			if f == c.fails {
				return refused
			}
			return nil
		})
		if (err != nil) != (c.fails != 0) || !slices.Equal(asked, c.want) {
			t.Errorf("%s: %v, asked %q", name, err, asked)
		}
		if left, _ := sets.Names(); len(left) > 0 {
			t.Errorf("%s: %q stay", name, left)
		}
	}
}

// TestCheckWithoutItsSet: an answer counts only while the set that is asked is there, which
// another program may destroy. One that does so each time ends the check.
func TestCheckWithoutItsSet(t *testing.T) {
	missing := errors.New("the set is not there")
	for times, want := range map[int]error{0: nil, 1: nil, checks - 1: nil, 2 * checks: missing} {
		sets := ipset.NewFake(nil)
		err := Check(t.Context(), sets, func(_ context.Context, _ iptables.Family, set string) error {
			if times--; times >= 0 {
				fatal.If(t, sets.Destroy(set))
				return missing
			}
			return nil
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if left, _ := sets.Names(); len(left) > 0 {
			t.Errorf("%q stay", left)
		}
	}
}

// TestCheckOfTheKernel: a node with ipset and iptables passes in both variants; without the
// match, or without the set, the error quotes iptables. Neither a set nor a table stays.
func TestCheckOfTheKernel(t *testing.T) {
	netns.Own(t)
	sets, err := ipset.Open()
	fatal.If(t, err)
	defer sets.Close()
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		chains, err := iptables.NewExec(v)
		fatal.If(t, err)
		if err := Check(t.Context(), sets, chains.CheckSet); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		if err := chains.CheckSet(t.Context(), iptables.IPv6, "no-such-set"); err == nil || !strings.Contains(err.Error(), "no-such-set") {
			t.Errorf("%s: without a set: %v", v, err)
		}
		t.Setenv("XTABLES_LIBDIR", t.TempDir())
		if err := Check(t.Context(), sets, chains.CheckSet); err == nil || !strings.Contains(err.Error(), "Couldn't load match `set'") {
			t.Errorf("%s: without the match: %v", v, err)
		}
		t.Setenv("XTABLES_LIBDIR", "")
		if err := os.Unsetenv("XTABLES_LIBDIR"); err != nil {
			t.Fatal(err)
		}
		all, err := chains.SaveAll(t.Context())
		fatal.If(t, err)
		for f, tables := range all {
			if len(tables) > 0 {
				t.Errorf("%s: tables of %s that were not there: %v", v, f, tables)
			}
		}
	}
	if left, err := sets.Sizes(); err != nil || len(left) > 0 {
		t.Errorf("sets stay: %v, %v", left, err)
	}
}
