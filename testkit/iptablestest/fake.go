// Package iptablestest has tables of iptables in memory.
package iptablestest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/namegate/namegate/kernel/iptables"
)

// builtin are the chains that each table has from the start.
var builtin = map[string][]string{
	"raw":      {"PREROUTING", "OUTPUT"},
	"mangle":   {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat":      {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"filter":   {"INPUT", "FORWARD", "OUTPUT"},
	"security": {"INPUT", "FORWARD", "OUTPUT"},
}

type tableKey struct {
	family iptables.Family
	table  string
}

// Fake is an iptables.Interface in memory. It refuses what the kernel refuses: a jump to a missing
// chain, the deletion of a chain that is referred to, the removal of a missing rule, a
// name or comment that is too long.
type Fake struct {
	mu     sync.Mutex
	tables map[tableKey]iptables.Chains
	fail   error
}

var _ iptables.Interface = (*Fake)(nil)

// NewFake returns a fake with empty built-in chains.
func NewFake() *Fake {
	f := &Fake{tables: map[tableKey]iptables.Chains{}}
	for _, fam := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		for table, chains := range builtin {
			f.tables[tableKey{fam, table}] = iptables.Chains{}
			for _, c := range chains {
				f.tables[tableKey{fam, table}][c] = nil
			}
		}
	}
	return f
}

// Fail lets every later Restore fail with err; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Restore implements iptables.Interface.
func (f *Fake) Restore(_ context.Context, tx *iptables.Transaction) error {
	if tx.Empty() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next, err := f.saved(tx.Family, tx.Table), error(nil)
	switch {
	case f.fail != nil:
		err = f.fail
	case len(next) == 0:
		err = fmt.Errorf("no such table")
	default:
		if err = apply(next, tx); err == nil {
			err = check(next)
		}
	}
	if err != nil {
		return fmt.Errorf("iptables restore of %s table %s: %w", tx.Family, tx.Table, err)
	}
	f.tables[tableKey{tx.Family, tx.Table}] = next
	return nil
}

// apply follows the lines of a transaction, as iptables-restore does.
func apply(c iptables.Chains, tx *iptables.Transaction) error {
	for line := range strings.Lines(tx.String()) {
		op, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, rule, _ := strings.Cut(rest, " ")
		rules, there := c[name]
		switch {
		case op[0] == '*' || op == "COMMIT":
			continue
		case op[0] == ':':
			if name = op[1:]; len(name) > iptables.ChainLengthMax {
				return fmt.Errorf("chain name %q is over %d bytes", name, iptables.ChainLengthMax)
			}
			c[name] = nil
			continue
		case !there:
			return fmt.Errorf("no chain %s", name)
		}
		switch op {
		case "-A":
			c[name] = append(rules, rule)
		case "-I":
			at, rule, _ := strings.Cut(rule, " ")
			n, err := strconv.Atoi(at)
			if err != nil || n > len(rules)+1 {
				return fmt.Errorf("no place %s in chain %s", at, name)
			}
			c[name] = slices.Insert(rules, n-1, rule)
		case "-D":
			n := slices.Index(rules, rule)
			if n < 0 {
				return fmt.Errorf("no rule %q in chain %s", rule, name)
			}
			c[name] = slices.Delete(rules, n, n+1)
		case "-X":
			delete(c, name)
		}
	}
	return nil
}

var targets = []string{"ACCEPT", "DROP", "RETURN", "MARK", "CONNMARK", "NFLOG"}

func check(c iptables.Chains) error {
	for chain, rules := range c {
		for _, r := range rules {
			if _, comment, _ := strings.Cut(r, `--comment "`); strings.Index(comment, `"`) > iptables.CommentLengthMax {
				return fmt.Errorf("a comment of chain %s is over %d bytes", chain, iptables.CommentLengthMax)
			}
			to := iptables.Target(r)
			if _, there := c[to]; to != "" && !there && !slices.Contains(targets, to) {
				return fmt.Errorf("chain %s refers to %s, which does not exist", chain, to)
			}
		}
	}
	return nil
}

// Save implements iptables.Interface.
func (f *Fake) Save(_ context.Context, fam iptables.Family, table string) (iptables.Chains, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saved(fam, table), nil
}

func (f *Fake) saved(fam iptables.Family, table string) iptables.Chains {
	out := iptables.Chains{}
	for name, rules := range f.tables[tableKey{fam, table}] {
		out[name] = slices.Clone(rules)
	}
	return out
}

// SaveAll implements iptables.Interface: the tables that hold a rule.
func (f *Fake) SaveAll(context.Context) (iptables.Everything, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := iptables.Everything{iptables.IPv4: {}, iptables.IPv6: {}}
	for of := range f.tables {
		for _, rules := range f.tables[of] {
			if len(rules) > 0 {
				out[of.family][of.table] = f.saved(of.family, of.table)
			}
		}
	}
	return out, nil
}

// Fingerprint implements iptables.Interface: how many chains and rules a table has.
func (f *Fake) Fingerprint(fam iptables.Family, table string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	chains, rules := 0, 0
	for _, r := range f.tables[tableKey{fam, table}] {
		chains, rules = chains+1, rules+len(r)
	}
	return fmt.Sprint(chains, rules), nil
}

// Dump returns a table as text: chains sorted by name, each followed by its
// rules; empty chains are left out.
func (f *Fake) Dump(fam iptables.Family, table string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	chains := f.tables[tableKey{fam, table}]
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		for _, r := range chains[name] {
			fmt.Fprintf(&b, "-A %s %s\n", name, r)
		}
	}
	return b.String()
}
