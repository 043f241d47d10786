package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Family is the IP version whose tables are meant: iptables or ip6tables.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// ChainLengthMax is the longest chain name in bytes: XT_FUNCTION_MAXNAMELEN (30)
// of linux/netfilter/x_tables.h less the closing zero and one byte that
// iptables keeps.
const ChainLengthMax = 28

// Chains is what one table holds: rules by chain, each rule as iptables-save
// prints it, without "-A CHAIN ".
type Chains map[string][]string

// Everything is chains by family and table.
type Everything map[Family]map[string]Chains

// Interface is the enforcer's view of iptables. Methods may be called from several
// goroutines.
type Interface interface {
	// Restore applies a transaction, all of it or nothing. An empty transaction
	// does nothing. The error holds what iptables-restore said.
	Restore(ctx context.Context, tx *Transaction) error
	// Save returns all chains of a table, including built-in chains and those of other
	// programs. A table that was never used may be empty.
	Save(ctx context.Context, f Family, table string) (Chains, error)
	// SaveAll returns the chains of all tables that are in use, of both families.
	// Asking does not bring a table into use.
	SaveAll(ctx context.Context) (Everything, error)
	// Fingerprint returns a text that differs after most changes of a table, whichever
	// program made them, and costs next to nothing; "" where the kernel reports changes
	// itself.
	Fingerprint(f Family, table string) (string, error)
}

// Transaction is an ordered list of changes to one table of one family.
type Transaction struct {
	Family Family
	Table  string
	ops    []op
}

type opKind uint8

const (
	replaceChain opKind = iota
	deleteChain
	insertRule
	deleteRule
)

type op struct {
	kind  opKind
	chain string
	rules []string
	at    int // of insertRule: the place that the rule gets, from 1
}

// NewTransaction returns an empty transaction for a table.
func NewTransaction(f Family, table string) *Transaction {
	return &Transaction{Family: f, Table: table}
}

// Replace creates a chain or empties it, and fills it with rules. Chains of one
// transaction may refer to each other in any order.
func (t *Transaction) Replace(chain string, rules ...string) {
	t.ops = append(t.ops, op{kind: replaceChain, chain: chain, rules: slices.Clone(rules)})
}

// Delete removes a chain of ours with its rules. It must exist, and nothing that
// remains may refer to it; chains deleted together may refer to each other.
func (t *Transaction) Delete(chain string) {
	t.ops = append(t.ops, op{kind: deleteChain, chain: chain})
}

// Insert puts a rule at the top of a chain that exists.
func (t *Transaction) Insert(chain, rule string) { t.InsertAt(chain, 1, rule) }

// InsertAt puts a rule at a place of a chain that exists; 1 is the top. Several rules of a
// chain are inserted from the top down.
func (t *Transaction) InsertAt(chain string, at int, rule string) {
	t.ops = append(t.ops, op{kind: insertRule, chain: chain, rules: []string{rule}, at: at})
}

// Remove deletes the first equal rule of a chain. It must exist.
func (t *Transaction) Remove(chain, rule string) {
	t.ops = append(t.ops, op{kind: deleteRule, chain: chain, rules: []string{rule}})
}

// Empty tells whether the transaction changes nothing.
func (t *Transaction) Empty() bool { return len(t.ops) == 0 }

// String renders the transaction as the input of iptables-restore --noflush.
func (t *Transaction) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", t.Table)
	// Declaring a chain creates it or empties it: first, so that rules may
	// refer forward, and so that chains to delete hold no reference.
	t.each(func(o op) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", o.chain)
	}, replaceChain, deleteChain)
	t.each(func(o op) {
		for _, r := range o.rules {
			fmt.Fprintf(&b, "-A %s %s\n", o.chain, r)
		}
	}, replaceChain)
	t.each(func(o op) {
		if o.kind == insertRule {
			fmt.Fprintf(&b, "-I %s %d %s\n", o.chain, o.at, o.rules[0])
		} else {
			fmt.Fprintf(&b, "-D %s %s\n", o.chain, o.rules[0])
		}
	}, insertRule, deleteRule)
	t.each(func(o op) { fmt.Fprintf(&b, "-X %s\n", o.chain) }, deleteChain)
	b.WriteString("COMMIT\n")
	return b.String()
}

func (t *Transaction) each(f func(op), kinds ...opKind) {
	for _, o := range t.ops {
		if slices.Contains(kinds, o.kind) {
			f(o)
		}
	}
}

// refused is the error of a transaction or a listing.
func refused(op string, f Family, table string, err error) error {
	return fmt.Errorf("iptables %s of %s table %s: %w", op, f, table, err)
}

// errMissing marks a program that is not installed.
var errMissing = errors.New("not found in PATH; install the package iptables")

// IsMissing tells whether err says that the iptables programs are not installed.
func IsMissing(err error) bool { return errors.Is(err, errMissing) }
