package nft

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/knftables"
)

// UnconfirmedTimeout is how long the rules of the node that wait for confirmation count after the
// last HoldUnconfirmed. Without an agent nothing but the kernel can end them. It is safeguard.AwayLimit.
const UnconfirmedTimeout = time.Minute

// heldSet, with the family, has the node while the rules that wait for confirmation count.
const heldSet = "nodeheld"

// heldSets adds the set to the layout.
func (l layout) heldSets(f family) {
	l.tx.Add(&knftables.Set{Name: heldSet + f.suffix, Type: f.addr, Flags: []knftables.SetFlag{knftables.TimeoutFlag}, Timeout: knftables.PtrTo(UnconfirmedTimeout)})
}

// isHeld tells whether an element is that of the set. It comes and goes by itself.
func isHeld(e *knftables.Element) bool {
	for _, f := range families {
		if e.Set == heldSet+f.suffix {
			return len(e.Key) == 1 && e.Key[0] == f.loopback
		}
	}
	return false
}

// addHeld adds the elements, in a transaction that makes the sets empty before.
func addHeld(tx *knftables.Transaction) {
	for _, f := range families {
		tx.Add(&knftables.Element{Set: heldSet + f.suffix, Key: []string{f.loopback}})
	}
}

// HoldUnconfirmed has the rules of the node that wait for confirmation count for another
// UnconfirmedTimeout. So does each Rewrite.
func (t *Tables) HoldUnconfirmed(ctx context.Context) error {
	tx := t.inet.NewTransaction()
	for _, f := range families {
		tx.Flush(&knftables.Set{Name: heldSet + f.suffix})
	}
	addHeld(tx)
	if err := t.run(ctx, t.inet, tx); err != nil {
		return fmt.Errorf("hold the rules that wait for confirmation: %w", err)
	}
	return nil
}
