package nft

import "time"

// ledger tells our own changes of nftables, those of iptables in nftables among them,
// from other programs': the kernel numbers all that are made in a network namespace,
// and ours are counted.
type ledger struct {
	turn chan struct{} // holds one when nobody has the ledger
	// generation asks for the number of the last change; nil on fakes.
	generation func() (uint32, error)
	last       uint32 // up to here all was ours, or has been looked at
	sure       bool
}

func newLedger() ledger {
	l := ledger{turn: make(chan struct{}, 1)}
	l.leave()
	return l
}

// own makes changes of ours, one after the other, each of them one number.
func (l *ledger) own(change func() error) error {
	<-l.turn
	defer l.leave()
	return l.counted(change)
}

// urgentWait is how long an urgent change waits for another of ours: most take less, and
// it is a fifth of a heartbeat.
const urgentWait = 200 * time.Millisecond

// urgent makes a change of ours that hardly waits for others. If one takes longer, the
// number is taken for somebody else's, and all is looked at once more.
func (l *ledger) urgent(change func() error) error {
	waited := time.NewTimer(urgentWait)
	defer waited.Stop()
	select {
	case <-l.turn:
		defer l.leave()
		return l.counted(change)
	case <-waited.C:
		return change()
	}
}

// exclude runs something while no change of ours is made, but for an urgent one.
func (l *ledger) exclude(f func() error) error {
	<-l.turn
	defer l.leave()
	return f()
}

func (l *ledger) leave() { l.turn <- struct{}{} }

// counted makes a change and counts its number; the ledger is locked.
func (l *ledger) counted(change func() error) error {
	if l.generation == nil || !l.sure {
		return change()
	}
	before, err := l.generation()
	l.sure = err == nil && before == l.last
	if err := change(); err != nil {
		l.sure = false
		return err
	}
	after, err := l.generation()
	// One that had nothing to do has no number.
	l.sure = l.sure && err == nil && after-before <= 1
	l.last = after
	return nil
}

// settle says that what is there now is going to be looked at.
func (l *ledger) settle() {
	<-l.turn
	defer l.leave()
	if l.generation == nil {
		return
	}
	var err error
	l.last, err = l.generation()
	l.sure = err == nil
}

// foreign tells whether something may have changed that is not ours and that nobody
// has looked at.
func (l *ledger) foreign() bool {
	<-l.turn
	defer l.leave()
	if l.generation == nil || !l.sure {
		return true
	}
	now, err := l.generation()
	return err != nil || now != l.last
}

// Own runs a change that somebody else makes of nftables for us, so that Foreign does
// not count it.
func (t *Tables) Own(change func() error) error { return t.ledger.own(change) }

// Settle is to be called before all is compared with what was written.
func (t *Tables) Settle() { t.ledger.settle() }

// Foreign tells whether another program may have changed nftables, iptables in
// nftables among it, since Settle. On fakes it always may have.
func (t *Tables) Foreign() bool { return t.ledger.foreign() }
