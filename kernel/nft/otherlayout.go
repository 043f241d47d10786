package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
		inetLayout(tx, t.bits)
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
func (t *Tables) remove(ctx context.Context, i int, tx *knftables.Transaction) (restore func(), err error) {
	alive, err := t.isAlive(ctx, i)
	if err != nil {
		return nil, err
	}
	// Add first: deleting a table that is not there would be an error.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
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
	s, err := t.skeletons[i]()
	if err != nil {
		return false, err
	}
	elements, err := t.elements(ctx, s, aliveSet)
	return slices.ContainsFunc(elements, func(e *knftables.Element) bool { return strings.Join(e.Key, "") == dnsPort }), err
}
