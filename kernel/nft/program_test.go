package nft

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// TestMessagesOfTheProgramAreBounded, and tell what knftables finds in them.
func TestMessagesOfTheProgramAreBounded(t *testing.T) {
	t.Parallel()
	p := program{knftables.NewFake(knftables.InetFamily, TableName)}
	tx := p.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Set{Name: strings.Repeat("long", 10_000)})
	err := p.Run(context.Background(), tx)
	if !knftables.IsNotFound(err) || len(err.Error()) > refusalBytes+3 || len(errors.Unwrap(err).Error()) < 10_000 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}
