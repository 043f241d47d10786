package generation

import "time"

// Tracker orders our changes of one network namespace and counts their numbers. Make it with New.
type Tracker struct {
	// lock holds a token while no change is made but urgent ones, count while none is made.
	lock, count chan struct{}
	// ask returns the number of the last change; nil where changes have no numbers.
	ask   func() (uint32, error)
	last  uint32 // all changes up to this number are ours, or have been verified
	known bool   // last is valid
}

// New returns a Tracker. ask returns the number of the last change of nftables, from 1; nil: changes
// have no numbers, and each may be external.
func New(ask func() (uint32, error)) *Tracker {
	return &Tracker{lock: newToken(), count: newToken(), ask: ask}
}

func newToken() chan struct{} {
	token := make(chan struct{}, 1)
	token <- struct{}{}
	return token
}

// hold takes a token; release gives it back.
func hold(token chan struct{}) (release func()) {
	<-token
	return func() { token <- struct{}{} }
}

// Own makes changes of ours, one after the other, each of them one number.
func (g *Tracker) Own(change func() error) error {
	return g.Quiet(func() error { return g.counted(change) })
}

// urgentWait is how long an urgent change waits for another of ours: most take less, and
// it is a fifth of a heartbeat.
const urgentWait = 200 * time.Millisecond

// Urgent makes a change of ours that hardly waits for others. If another takes longer, the
// number of this one counts as an external change, and everything is verified once more.
func (g *Tracker) Urgent(change func() error) error {
	waited := time.NewTimer(urgentWait)
	defer waited.Stop()
	select {
	case <-g.count:
		defer func() { g.count <- struct{}{} }()
		return g.counted(change)
	case <-waited.C:
		return change()
	}
}

// Exclude runs f while no change of ours is made, but for an urgent one.
func (g *Tracker) Exclude(f func() error) error {
	defer hold(g.lock)()
	return f()
}

// Quiet runs f while no change of ours is made at all, but for an urgent one that waited
// long enough.
func (g *Tracker) Quiet(f func() error) error {
	return g.Exclude(func() error {
		defer hold(g.count)()
		return f()
	})
}

// Now returns the number of the last change, 0 where changes have none.
func (g *Tracker) Now() (uint32, error) {
	if g.ask == nil {
		return 0, nil
	}
	return g.ask()
}

// counted makes a change and counts its number. The caller holds count.
func (g *Tracker) counted(change func() error) error {
	if g.ask == nil || !g.known {
		return change()
	}
	before, err := g.ask()
	g.known = err == nil && before == g.last
	if err := change(); err != nil {
		g.known = false
		return err
	}
	after, err := g.ask()
	// A change that had nothing to do has no number.
	g.known = g.known && err == nil && after-before <= 1
	g.last = after
	return nil
}

// Forget has External tell of a change until the next Checkpoint.
func (g *Tracker) Forget() {
	defer hold(g.count)()
	g.known = false
}

// Checkpoint notes the present number: the caller is about to verify everything.
func (g *Tracker) Checkpoint() {
	defer hold(g.count)()
	if g.ask == nil {
		return
	}
	var err error
	g.last, err = g.ask()
	g.known = err == nil
}

// External tells whether there may be a change that is not ours and is not verified.
func (g *Tracker) External() bool {
	defer hold(g.count)()
	if g.ask == nil || !g.known {
		return true
	}
	now, err := g.ask()
	return err != nil || now != g.last
}
