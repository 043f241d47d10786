package enforcer

import "context"

// Compare compares the kernel with the wanted state and repairs it, as RunReconcile does at
// times of its own choice.
func (e *Enforcer) Compare() error { return e.compare(context.Background(), true, true) }

// RecheckDue looks at connections again where that is due, and tells whether nothing more
// will be.
func (e *Enforcer) RecheckDue() bool {
	e.recheckDue(context.Background())
	return len(e.flows.Recorded()) == 0
}
