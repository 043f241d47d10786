package nft

import (
	"errors"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
)

// TestUrgentChangesWhileTablesAreRead: a reading of tables excludes our changes but urgent
// ones, which do not wait for it and are counted.
func TestUrgentChangesWhileTablesAreRead(t *testing.T) {
	g, number := newGenerationTracker(), uint32(7)
	g.generation = func() (uint32, error) { return number, nil }
	g.checkpoint()
	change := func() error { number++; return nil }
	fatal.If(t, g.exclude(func() error { return errors.Join(g.urgent(change), g.urgent(change)) }))
	if g.externalChange() {
		t.Error("urgent changes count as external")
	}
	fatal.If(t, g.exclude(change))
	if !g.externalChange() {
		t.Error("an external change is not noticed")
	}
}
