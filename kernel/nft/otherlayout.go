package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// signPrefix begins the name of the chain that says, by being there, which layout a
// table has. It holds nothing and nothing leads to it.
const signPrefix = "layout-"

// sign is the name of that chain for a table of this agent's.
func (t *Tables) sign(i int) string {
	tx := knftables.NewFake(tableFamilies[i], TableName).NewTransaction()
	if tableFamilies[i] == knftables.InetFamily {
		inetLayout(tx, t.bits, t.namespace, t.candidates)
	} else {
		bridgeLayout(tx)
	}
	sum := sha256.Sum256([]byte(tx.String()))
	return signPrefix + hex.EncodeToString(sum[:6])
}

// isOtherLayout tells whether a table is one of ours in another layout.
func (t *Tables) isOtherLayout(i int, is *contents) bool {
	_, signed := is.rules[t.sign(i)]
	return len(is.rules) > 0 && !signed
}

// replace begins a transaction that replaces what a table of any layout holds; the old table is in
// force until the whole transaction is. restore, after the layout, leaves the dead-man
// switch as it was.
//
// Chains that the new layout has too stay, with other rules. A packet that is under way when
// the kernel takes one base chain for another may meet the new one before its rules are in
// force and the old one after: it would meet no rule. A base chain that goes has its rules for
// a while after the transaction is in force (tried on Linux 6.18: 80 µs), and the elements of
// a map that goes are gone at once: such a rule would deny what the map allows. So maps stay:
// those that the new layout has too with its elements, the others as they are until
// removeLeft. Sets of entries that the state wants stay too, with their entries: agents write to
// them all the time. With whole nothing stays.
func (t *Tables) replace(ctx context.Context, i int, tx *knftables.Transaction, whole bool) (restore func(), err error) {
	alive, err := t.isAlive(ctx, i)
	if err != nil {
		return nil, err
	}
	is, err := t.objects(ctx, tableFamilies[i], TableName)
	if err != nil {
		return nil, err
	}
	s, err := t.skeleton(i, t.tiers)
	if err != nil {
		return nil, err
	}
	// Add first: deleting a table that is not there would be an error. It wakes one that is dormant.
	tx.Add(&knftables.Table{})
	if whole {
		tx.Delete(&knftables.Table{})
	} else {
		is.remove(tx, func(name string) bool {
			return strings.HasPrefix(name, signPrefix) || s.rules[name] != nil && is.hooks != nil && is.hooks[name] != s.hooks[name]
		}, func(name string) bool {
			form, keeps := s.forms[name]
			return s.types[name] != nil && !(keeps && (is.forms == nil || is.forms[name] == form))
		})
	}
	return func() {
		if alive {
			tx.Add(&knftables.Element{Set: aliveSet, Key: []string{dnsPort}})
		}
	}, nil
}

// removeLeft removes what the layout and the state do not have, and signs tables that replace
// another layout: until then the next agent finds another layout.
func (t *Tables) removeLeft(ctx context.Context) error {
	for i, table := range t.both() {
		s, err := t.skeleton(i, t.tiers)
		if err != nil {
			return err
		}
		is, err := t.objects(ctx, tableFamilies[i], TableName)
		if err != nil {
			return err
		}
		there, signed := len(is.rules) > 0, is.rules[t.sign(i)] != nil
		maps.DeleteFunc(is.rules, func(name string, _ []string) bool { return s.rules[name] != nil })
		maps.DeleteFunc(is.elements, func(name string, _ elements) bool { return s.types[name] != nil })
		if !there || signed && len(is.rules)+len(is.elements) == 0 {
			continue
		}
		tx, all := table.NewTransaction(), func(string) bool { return true }
		is.remove(tx, all, all)
		commented{tx}.Add(&knftables.Chain{Name: t.sign(i)})
		if err := t.run(ctx, table, tx); err != nil {
			return fmt.Errorf("remove an earlier layout from nft table %s %s: %w", tableFamilies[i], TableName, err)
		}
	}
	return nil
}

// remove empties the chains of a table, and removes chains and sets.
func (is *contents) remove(tx transaction, chain, set func(name string) bool) {
	chains := slices.Sorted(maps.Keys(is.rules))
	for _, name := range chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	// Elements of maps refer to chains.
	for _, name := range slices.Sorted(maps.Keys(is.elements)) {
		switch {
		case !set(name):
		case is.maps[name]:
			tx.Delete(&knftables.Map{Name: name})
		default:
			tx.Delete(&knftables.Set{Name: name})
		}
	}
	for _, name := range chains {
		if chain(name) {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}

// isAlive tells whether the dead-man switch of a table is on.
func (t *Tables) isAlive(ctx context.Context, i int) (bool, error) {
	if tableFamilies[i] != knftables.InetFamily {
		return false, nil
	}
	s, err := t.plainSkeleton(i)
	if err != nil {
		return false, err
	}
	elements, err := t.elements(ctx, s, aliveSet)
	return slices.ContainsFunc(elements, func(e *knftables.Element) bool { return strings.Join(e.Key, "") == dnsPort }), err
}
