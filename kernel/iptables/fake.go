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
// name that is too long.
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
	refuse := func(err error) error {
		return refused("restore", tx.Family, tx.Table, err)
	}
	if f.fail != nil {
		return refuse(f.fail)
	}
	old := f.tables[tableKey{tx.Family, tx.Table}]
	if old == nil {
		return refuse(fmt.Errorf("no such table"))
	}
	next := Chains{}
	for name, rules := range old {
		next[name] = slices.Clone(rules)
	}
	if err := next.apply(tx); err != nil {
		return refuse(err)
	}
	if err := next.check(); err != nil {
		return refuse(err)
	}
	f.tables[tableKey{tx.Family, tx.Table}] = next
	return nil
}

// apply follows the order in which String renders.
func (c Chains) apply(tx *Transaction) error {
	var err error
	tx.each(func(o op) {
		if len(o.chain) > ChainLengthMax {
			err = fmt.Errorf("chain name %q is over %d bytes", o.chain, ChainLengthMax)
		}
		c[o.chain] = slices.Clone(o.rules)
	}, replaceChain, deleteChain)
	tx.each(func(o op) {
		rules, there := c[o.chain]
		i := slices.Index(rules, o.rules[0])
		switch {
		case !there:
			err = fmt.Errorf("no chain %s", o.chain)
		case o.kind == insertRule && o.at > len(rules)+1:
			err = fmt.Errorf("no place %d in chain %s", o.at, o.chain)
		case o.kind == insertRule:
			c[o.chain] = slices.Insert(rules, o.at-1, o.rules[0])
		case i < 0:
			err = fmt.Errorf("no rule %q in chain %s", o.rules[0], o.chain)
		default:
			c[o.chain] = slices.Delete(rules, i, i+1)
		}
	}, insertRule, deleteRule)
	tx.each(func(o op) { delete(c, o.chain) }, deleteChain)
	return err
}

var targets = []string{"ACCEPT", "DROP", "RETURN", "MARK", "CONNMARK", "NFLOG"}

func (c Chains) check() error {
	for chain, rules := range c {
		for _, r := range rules {
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
	out := Chains{}
	for name, rules := range f.tables[tableKey{fam, table}] {
		out[name] = slices.Clone(rules)
	}
	return out, nil
}

// SaveAll implements Interface: the tables that hold a rule.
func (f *Fake) SaveAll(ctx context.Context) (Everything, error) {
	out := Everything{IPv4: {}, IPv6: {}}
	for fam, tables := range out {
		for table := range builtin {
			chains, err := f.Save(ctx, fam, table)
			if err != nil {
				return nil, err
			}
			for _, rules := range chains {
				if len(rules) > 0 {
					tables[table] = chains
				}
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
