package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
	family Family
	table  string
}

// Fake is an Interface in memory. It refuses what the kernel refuses: a jump to a missing
// chain, the deletion of a chain that is referred to, the removal of a missing rule, a
// name or comment that is too long.
type Fake struct {
	mu     sync.Mutex
	tables map[tableKey]Chains
	fail   error
}

var _ Interface = (*Fake)(nil)

// NewFake returns a fake with empty built-in chains.
func NewFake() *Fake {
	f := &Fake{tables: map[tableKey]Chains{}}
	for _, fam := range []Family{IPv4, IPv6} {
		for table, chains := range builtin {
			f.tables[tableKey{fam, table}] = Chains{}
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

// Restore implements Interface.
func (f *Fake) Restore(_ context.Context, tx *Transaction) error {
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
		if err = next.apply(tx); err == nil {
			err = next.check()
		}
	}
	if err != nil {
		return refused("restore", tx.Family, tx.Table, err)
	}
	f.tables[tableKey{tx.Family, tx.Table}] = next
	return nil
}

// apply follows the order in which String renders.
func (c Chains) apply(tx *Transaction) error {
	for _, r := range tx.replaced {
		if len(r.name) > ChainLengthMax {
			return fmt.Errorf("chain name %q is over %d bytes", r.name, ChainLengthMax)
		}
		c[r.name] = slices.Clone(r.rules)
	}
	for _, name := range tx.deleted {
		c[name] = nil
	}
	for _, r := range tx.rules {
		rules, there := c[r.chain]
		i := slices.Index(rules, r.rule)
		switch {
		case !there:
			return fmt.Errorf("no chain %s", r.chain)
		case r.at > len(rules)+1:
			return fmt.Errorf("no place %d in chain %s", r.at, r.chain)
		case r.at > 0:
			c[r.chain] = slices.Insert(rules, r.at-1, r.rule)
		case i < 0:
			return fmt.Errorf("no rule %q in chain %s", r.rule, r.chain)
		default:
			c[r.chain] = slices.Delete(rules, i, i+1)
		}
	}
	for _, name := range tx.deleted {
		delete(c, name)
	}
	return nil
}

var targets = []string{"ACCEPT", "DROP", "RETURN", "MARK", "CONNMARK", "NFLOG"}

func (c Chains) check() error {
	for chain, rules := range c {
		for _, r := range rules {
			if _, comment, _ := strings.Cut(r, `--comment "`); strings.Index(comment, `"`) > CommentLengthMax {
				return fmt.Errorf("a comment of chain %s is over %d bytes", chain, CommentLengthMax)
			}
			to := Target(r)
			if _, there := c[to]; to != "" && !there && !slices.Contains(targets, to) {
				return fmt.Errorf("chain %s refers to %s, which does not exist", chain, to)
			}
		}
	}
	return nil
}

// Target returns the chain or target that a rule jumps or goes to, "" for none.
func Target(rule string) string {
	words := strings.Fields(rule)
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "-j" || w == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// Save implements Interface.
func (f *Fake) Save(_ context.Context, fam Family, table string) (Chains, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saved(fam, table), nil
}

func (f *Fake) saved(fam Family, table string) Chains {
	out := Chains{}
	for name, rules := range f.tables[tableKey{fam, table}] {
		out[name] = slices.Clone(rules)
	}
	return out
}

// SaveAll implements Interface: the tables that hold a rule.
func (f *Fake) SaveAll(context.Context) (Everything, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Everything{IPv4: {}, IPv6: {}}
	for of := range f.tables {
		for _, rules := range f.tables[of] {
			if len(rules) > 0 {
				out[of.family][of.table] = f.saved(of.family, of.table)
			}
		}
	}
	return out, nil
}

// Fingerprint implements Interface: how many chains and rules a table has.
func (f *Fake) Fingerprint(fam Family, table string) (string, error) {
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
func (f *Fake) Dump(fam Family, table string) string {
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
