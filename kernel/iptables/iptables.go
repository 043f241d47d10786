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

// CommentLengthMax is the longest comment of a rule in bytes: XT_MAX_COMMENT_LEN (256) of
// linux/netfilter/xt_comment.h less the closing zero. iptables cuts a longer comment, and refuses one
// of 1,024 bytes with all that is written with it.
const CommentLengthMax = 255

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

// Transaction is changes to one table of one family.
type Transaction struct {
	Family Family
	Table  string

	replaced []chain
	rules    []ruleChange
	deleted  []string
}

type chain struct {
	name  string
	rules []string
}

// ruleChange inserts a rule at a place of a chain, from 1, or with at 0 removes the first that is equal.
type ruleChange struct {
	chain, rule string
	at          int
}

// NewTransaction returns an empty transaction for a table.
func NewTransaction(f Family, table string) *Transaction {
	return &Transaction{Family: f, Table: table}
}

// Replace creates a chain or empties it, and fills it with rules. Chains of one
// transaction may refer to each other in any order.
func (t *Transaction) Replace(name string, rules ...string) {
	t.replaced = append(t.replaced, chain{name, slices.Clone(rules)})
}

// Delete removes a chain of ours with its rules. It must exist, and nothing that
// remains may refer to it; chains deleted together may refer to each other.
func (t *Transaction) Delete(chain string) { t.deleted = append(t.deleted, chain) }

// Insert puts a rule at the top of a chain that exists.
func (t *Transaction) Insert(chain, rule string) { t.InsertAt(chain, 1, rule) }

// InsertAt puts a rule at a place of a chain that exists; 1 is the top. Several rules of a
// chain are inserted from the top down.
func (t *Transaction) InsertAt(chain string, at int, rule string) {
	t.rules = append(t.rules, ruleChange{chain, rule, at})
}

// Remove deletes the first equal rule of a chain. It must exist.
func (t *Transaction) Remove(chain, rule string) { t.InsertAt(chain, 0, rule) }

// Empty tells whether the transaction changes nothing.
func (t *Transaction) Empty() bool { return len(t.replaced)+len(t.rules)+len(t.deleted) == 0 }

// String renders the transaction as the input of iptables-restore --noflush.
func (t *Transaction) String() string {
	var b strings.Builder
	line := func(format string, words ...any) { fmt.Fprintf(&b, format+"\n", words...) }
	line("*%s", t.Table)
	// Declaring a chain creates it or empties it: first, so that rules may
	// refer forward, and so that chains to delete hold no reference.
	for _, c := range t.replaced {
		line(":%s - [0:0]", c.name)
	}
	for _, name := range t.deleted {
		line(":%s - [0:0]", name)
	}
	for _, c := range t.replaced {
		for _, r := range c.rules {
			line("-A %s %s", c.name, r)
		}
	}
	for _, c := range t.rules {
		if c.at > 0 {
			line("-I %s %d %s", c.chain, c.at, c.rule)
		} else {
			line("-D %s %s", c.chain, c.rule)
		}
	}
	for _, name := range t.deleted {
		line("-X %s", name)
	}
	line("COMMIT")
	return b.String()
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

// refused is the error of a transaction or a listing.
func refused(op string, f Family, table string, err error) error {
	return fmt.Errorf("iptables %s of %s table %s: %w", op, f, table, err)
}

// errMissing marks a program that is not installed.
var errMissing = errors.New("not found in PATH; install the package iptables")

// IsMissing tells whether err says that the iptables programs are not installed.
func IsMissing(err error) bool { return errors.Is(err, errMissing) }
