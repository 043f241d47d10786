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

func isHeldSet(set string) bool { return set == heldSet+"4" || set == heldSet+"6" }

// HoldUnconfirmed has the rules of the node that wait for confirmation count for another
// UnconfirmedTimeout.
func (t *Tables) HoldUnconfirmed(ctx context.Context) error {
	tx := t.inet.NewTransaction()
	for _, f := range families {
		tx.Flush(&knftables.Set{Name: heldSet + f.suffix})
		tx.Add(&knftables.Element{Set: heldSet + f.suffix, Key: []string{f.loopback}})
	}
	if err := t.run(ctx, t.inet, tx); err != nil {
		return fmt.Errorf("hold the rules that wait for confirmation: %w", err)
	}
	return nil
}
