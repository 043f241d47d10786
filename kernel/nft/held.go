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

// heldElements are the elements of the set.
func heldElements() (out []*knftables.Element) {
	for _, f := range families {
		out = append(out, &knftables.Element{Family: knftables.InetFamily, Table: TableName, Set: heldSet + f.suffix, Key: []string{f.loopback}})
	}
	return out
}

// HoldUnconfirmed has the rules of the node that wait for confirmation count for another
// UnconfirmedTimeout. So does each Rewrite.
func (t *Tables) HoldUnconfirmed(ctx context.Context) error {
	err := t.changeElements(ctx, func(tx transaction) {
		for _, e := range heldElements() {
			// One that is there keeps its deadline, and one that is not cannot be deleted.
			tx.Add(e)
			tx.Delete(e)
			tx.Add(e)
		}
	})
	if err != nil {
		return fmt.Errorf("hold the rules that wait for confirmation: %w", err)
	}
	return nil
}
