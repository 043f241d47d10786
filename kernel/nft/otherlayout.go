package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// remove begins a transaction that replaces a table of any layout; the old table is in
// force until the whole transaction is. restore, after the layout, leaves the dead-man
// switch as it was.
//
// Base chains that the new layout has too stay, with other rules. A packet that is under way
// when the kernel takes one base chain for another may meet the new one before its rules are
// in force and the old one after: it would meet no rule. With whole none stays.
func (t *Tables) remove(ctx context.Context, i int, tx *knftables.Transaction, whole bool) (restore func(), err error) {
	alive, err := t.isAlive(ctx, i)
	if err != nil {
		return nil, err
	}
	is, err := t.reader.objects(ctx, tableFamilies[i], TableName)
	if err != nil {
		return nil, err
	}
	s, err := t.skeleton(i, t.tiers)
	if err != nil {
		return nil, err
	}
	// Add first: deleting a table that is not there would be an error.
	tx.Add(&knftables.Table{})
	if whole || is.hooks == nil || is.dormant {
		tx.Delete(&knftables.Table{})
	} else {
		chains := slices.Sorted(maps.Keys(is.rules))
		for _, name := range chains {
			tx.Flush(&knftables.Chain{Name: name})
		}
		removeObjects(tx, nil, slices.Sorted(maps.Keys(is.elements)))
		removeObjects(tx, slices.DeleteFunc(chains, func(name string) bool { return is.hooks[name] != "" && is.hooks[name] == s.hooks[name] }), nil)
	}
	return func() {
		if alive {
			tx.Add(&knftables.Element{Set: aliveSet, Key: []string{dnsPort}})
		}
	}, nil
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
