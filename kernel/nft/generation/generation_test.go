package generation

import (
	"errors"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestUrgentChangesWhileTablesAreRead: a reading of tables excludes our changes but urgent
// ones, which do not wait for it and are counted.
func TestUrgentChangesWhileTablesAreRead(t *testing.T) {
	number := uint32(7)
	g := New(func() (uint32, error) { return number, nil })
	g.Checkpoint()
	change := func() error { number++; return nil }
	fatal.If(t, g.Exclude(func() error { return errors.Join(g.Urgent(change), g.Urgent(change)) }))
	if g.External() {
		t.Error("urgent changes count as external")
	}
	fatal.If(t, g.Exclude(change))
	if !g.External() {
		t.Error("an external change is not noticed")
	}
}
