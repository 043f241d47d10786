package nft

import "time"

// generationTracker separates our own changes of nftables, including those of iptables in
// nftables, from other programs' changes: the kernel numbers all changes in a network
// namespace, and ours are counted.
type generationTracker struct {
	// lock holds a token while no change is made but urgent ones, count while none is made.
	lock, count chan struct{}
	// generation asks for the number of the last change; nil on fakes.
	generation func() (uint32, error)
	last       uint32 // all changes up to this number are ours, or have been verified
	known      bool   // last is valid
}

func newGenerationTracker() generationTracker {
	return generationTracker{lock: newToken(), count: newToken()}
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

// own makes changes of ours, one after the other, each of them one number.
func (g *generationTracker) own(change func() error) error {
	return g.quiet(func() error { return g.counted(change) })
}

// urgentWait is how long an urgent change waits for another of ours: most take less, and
// it is a fifth of a heartbeat.
const urgentWait = 200 * time.Millisecond

// urgent makes a change of ours that hardly waits for others. If another takes longer, the
// number of this one counts as an external change, and everything is verified once more.
func (g *generationTracker) urgent(change func() error) error {
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

// exclude runs f while no change of ours is made, but for an urgent one.
func (g *generationTracker) exclude(f func() error) error {
	defer hold(g.lock)()
	return f()
}

// quiet runs f while no change of ours is made at all, but for an urgent one that waited
// long enough.
func (g *generationTracker) quiet(f func() error) error {
	return g.exclude(func() error {
		defer hold(g.count)()
		return f()
	})
}

// now returns the number of the last change, 0 on fakes.
func (g *generationTracker) now() (uint32, error) {
	if g.generation == nil {
		return 0, nil
	}
	return g.generation()
}

// counted makes a change and counts its number. The caller holds count.
func (g *generationTracker) counted(change func() error) error {
	if g.generation == nil || !g.known {
		return change()
	}
	before, err := g.generation()
	g.known = err == nil && before == g.last
	if err := change(); err != nil {
		g.known = false
		return err
	}
	after, err := g.generation()
	// A change that had nothing to do has no number.
	g.known = g.known && err == nil && after-before <= 1
	g.last = after
	return nil
}

// checkpoint notes the present number: the caller is about to verify everything.
func (g *generationTracker) checkpoint() {
	defer hold(g.count)()
	if g.generation == nil {
		return
	}
	var err error
	g.last, err = g.generation()
	g.known = err == nil
}

// externalChange tells whether there may be a change that is not ours and is not verified.
func (g *generationTracker) externalChange() bool {
	defer hold(g.count)()
	if g.generation == nil || !g.known {
		return true
	}
	now, err := g.generation()
	return err != nil || now != g.last
}

// Own runs a change that another package makes of nftables for the agent, so that
// ExternalChange does not count it.
func (t *Tables) Own(change func() error) error { return t.generations.own(change) }

// Checkpoint notes the generation of nftables. The caller calls it before it compares
// everything in the kernel with the desired state.
func (t *Tables) Checkpoint() { t.generations.checkpoint() }

// ExternalChange tells whether another program may have changed nftables, iptables in
// nftables included, since Checkpoint. On fakes it is always true.
func (t *Tables) ExternalChange() bool { return t.generations.externalChange() }
