package iptables_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
	"github.com/namegate/namegate/testkit/netns"
)

// every runs a test against both variants in the kernel and against the fake.
func every(t *testing.T, test func(t *testing.T, i iptables.Interface)) {
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		t.Run(string(v), func(t *testing.T) {
			netns.Own(t)
			e, err := iptables.NewExec(v)
			fatal.If(t, err)
			test(t, e)
		})
	}
	t.Run("fake", func(t *testing.T) { test(t, iptablestest.NewFake()) })
}

func save(t *testing.T, i iptables.Interface, f iptables.Family, table string) iptables.Chains {
	t.Helper()
	c, err := i.Save(context.Background(), f, table)
	fatal.If(t, err)
	for name, rules := range c {
		if len(rules) == 0 && strings.ToUpper(name) == name && !strings.HasPrefix(name, "NAMEGATE") {
			delete(c, name)
		}
	}
	return c
}

func TestTransactionIsADelta(t *testing.T) {
	ctx := context.Background()
	every(t, func(t *testing.T, i iptables.Interface) {
		for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			other := iptables.NewTransaction(f, "mangle")
			other.Replace("OTHER", "-j ACCEPT")
			other.Insert("FORWARD", "-j OTHER")
			ours := iptables.NewTransaction(f, "mangle")
			ours.Replace("NAMEGATE-A", "-j NAMEGATE-B", "-j RETURN")
			ours.Replace("NAMEGATE-B", "-p tcp -m multiport --dports 443,8000:9000 -j MARK --set-xmark 0x40/0x40")
			ours.Insert("FORWARD", "-j NAMEGATE-A")
			for _, tx := range []*iptables.Transaction{other, ours} {
				fatal.If(t, i.Restore(ctx, tx))
			}
			want := iptables.Chains{
				"OTHER":      {"-j ACCEPT"},
				"FORWARD":    {"-j NAMEGATE-A", "-j OTHER"},
				"NAMEGATE-A": {"-j NAMEGATE-B", "-j RETURN"},
				"NAMEGATE-B": {"-p tcp -m multiport --dports 443,8000:9000 -j MARK --set-xmark 0x40/0x40"},
			}
			diff.Fatal(t, want, save(t, i, f, "mangle"), f, "after create")
			tx := iptables.NewTransaction(f, "mangle")
			tx.Replace("NAMEGATE-A", "-j DROP")
			tx.Delete("NAMEGATE-B")
			fatal.If(t, i.Restore(ctx, tx))
			want["NAMEGATE-A"] = []string{"-j DROP"}
			delete(want, "NAMEGATE-B")
			diff.Fatal(t, want, save(t, i, f, "mangle"), f, "after change")
			tx = iptables.NewTransaction(f, "mangle")
			tx.Replace("NAMEGATE-C", "-j ACCEPT")
			around := []string{"-p tcp -j NAMEGATE-C", "-p udp -j NAMEGATE-C", "-j DROP", "-p tcp -j RETURN", "-p udp -j RETURN"}
			for n, rule := range around {
				if rule != "-j DROP" {
					tx.InsertAt("NAMEGATE-A", n+1, rule)
				}
			}
			fatal.If(t, i.Restore(ctx, tx))
			want["NAMEGATE-A"] = around
			want["NAMEGATE-C"] = []string{"-j ACCEPT"}
			diff.Fatal(t, want, save(t, i, f, "mangle"), f, "after insertions")
			tx = iptables.NewTransaction(f, "mangle")
			tx.Delete("NAMEGATE-C")
			tx.Remove("FORWARD", "-j NAMEGATE-A")
			tx.Delete("NAMEGATE-A")
			fatal.If(t, i.Restore(ctx, tx))
			if got := save(t, i, f, "mangle"); len(got) != 2 || !slices.Equal(got["FORWARD"], []string{"-j OTHER"}) {
				t.Fatalf("%v: the other program's rules must be all that is left, got %v", f, got)
			}
		}
	})
}

func TestRefusedTransactionChangesNothing(t *testing.T) {
	ctx := context.Background()
	tests := []struct {
		name string
		fill func(tx *iptables.Transaction)
	}{
		{"jump to a missing chain", func(tx *iptables.Transaction) { tx.Replace("NAMEGATE-A", "-j NAMEGATE-NONE") }},
		{"removal of a missing rule", func(tx *iptables.Transaction) { tx.Remove("FORWARD", "-j DROP") }},
		{"insertion beyond the end", func(tx *iptables.Transaction) { tx.InsertAt("NAMEGATE-KEEP", 3, "-j DROP") }},
		{"name too long", func(tx *iptables.Transaction) { tx.Replace("NAMEGATE-" + strings.Repeat("x", 20)) }},
		{"deletion of a referred chain", func(tx *iptables.Transaction) { tx.Delete("NAMEGATE-KEEP") }},
	}
	every(t, func(t *testing.T, i iptables.Interface) {
		keep := iptables.NewTransaction(iptables.IPv4, "security")
		keep.Replace("NAMEGATE-KEEP", "-j RETURN")
		keep.Insert("FORWARD", "-j NAMEGATE-KEEP")
		fatal.If(t, i.Restore(ctx, keep))
		before := save(t, i, iptables.IPv4, "security")
		for _, test := range tests {
			tx := iptables.NewTransaction(iptables.IPv4, "security")
			tx.Replace("NAMEGATE-NEW", "-j DROP")
			test.fill(tx)
			if err := i.Restore(ctx, tx); err == nil {
				t.Errorf("%s: no error", test.name)
			}
			diff.Error(t, before, save(t, i, iptables.IPv4, "security"), test.name, "left something behind")
		}
	})
}

func TestEmptyTransactionRunsNothing(t *testing.T) {
	f := iptablestest.NewFake()
	f.Fail(errors.New("it ran"))
	for _, i := range []iptables.Interface{f, &iptables.Exec{}} {
		if err := i.Restore(context.Background(), iptables.NewTransaction(iptables.IPv4, "raw")); err != nil {
			t.Errorf("empty transaction: %v", err)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := iptables.NewExec(iptables.Default)
	if !iptables.IsMissing(err) || !strings.Contains(err.Error(), "install the package iptables") {
		t.Errorf("NewExec without programs: %v", err)
	}
}

// TestFingerprint: a change shows without a program, and asking changes nothing. Of the
// nft variant the kernel tells itself.
func TestFingerprint(t *testing.T) {
	every(t, func(t *testing.T, i iptables.Interface) {
		for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			fingerprint := func() string {
				t.Helper()
				g, err := i.Fingerprint(f, "mangle")
				fatal.If(t, err)
				return g
			}
			restore := func(change func(*iptables.Transaction)) {
				t.Helper()
				tx := iptables.NewTransaction(f, "mangle")
				change(tx)
				fatal.If(t, i.Restore(context.Background(), tx))
			}
			restore(func(tx *iptables.Transaction) { tx.Replace("NAMEGATE-A", "-j RETURN") })
			first := fingerprint()
			if first == "" {
				return // the nft variant
			}
			if again := fingerprint(); again != first {
				t.Errorf("%s: %q, then %q", f, first, again)
			}
			restore(func(tx *iptables.Transaction) { tx.Remove("NAMEGATE-A", "-j RETURN") })
			if gone := fingerprint(); gone == first {
				t.Errorf("%s: a rule was removed, and still %q", f, first)
			}
		}
		if _, fake := i.(*iptablestest.Fake); fake {
			return
		}
		if g, err := i.Fingerprint(iptables.IPv4, "nonsense"); err == nil {
			t.Errorf("a table that is not there looks like %q", g)
		}
	})
}

// TestCheckSets: a node with ipset and iptables passes in both variants. Without the match, or where the kernel cannot be
// asked, the error quotes iptables. No table stays.
func TestCheckSets(t *testing.T) {
	netns.Own(t)
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		chains, err := iptables.NewExec(v)
		fatal.If(t, err)
		if err := chains.CheckSets(t.Context()); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		t.Run("without the match", func(t *testing.T) {
			t.Setenv("XTABLES_LIBDIR", t.TempDir())
			if err := chains.CheckSets(t.Context()); err == nil || !strings.Contains(err.Error(), "Couldn't load match `set'") {
				t.Errorf("%s: %v", v, err)
			}
		})
		all, err := chains.SaveAll(t.Context())
		fatal.If(t, err)
		for f, tables := range all {
			if len(tables) > 0 {
				t.Errorf("%s: tables of %s that were not there: %v", v, f, tables)
			}
		}
	}
}
