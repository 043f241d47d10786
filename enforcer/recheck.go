package enforcer

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// A packet is judged before conntrack confirms its connection, and a connection that is
// not confirmed is in no listing. A packet that was judged before its entry was taken
// back, and is on its way while the connections are listed, stays admitted. So the
// connections are listed again when every such packet has arrived.

// packetGrace is longer than a packet takes from the first hook to the last one. It does
// not count what another program holds back in a queue of its own.
const packetGrace = time.Second

// recheck is what a Commit has cut, and when to look at it again.
type recheck struct {
	due    time.Time
	pods   map[policy.PodRef]bool
	review map[policy.PodRef]lostPeers
	gone   []netip.Addr
}

// settleDebts cuts what a Commit took back.
func (e *Enforcer) settleDebts() error {
	if err := e.cut(e.rejudge, e.review, e.gone); err != nil {
		return err
	}
	if gone := append(e.gone, e.strangers...); len(e.rejudge)+len(e.review)+len(gone) > 0 {
		e.rechecks = append(e.rechecks, recheck{e.now().Add(packetGrace), e.rejudge, e.review, gone})
		e.rejudge, e.review = map[policy.PodRef]bool{}, map[policy.PodRef]lostPeers{}
	}
	e.gone, e.strangers = nil, nil
	if err := e.cutAgain(); err != nil {
		return err
	}
	e.whole = true
	return nil
}

// cutAgain cuts again what is due, with one listing. Nothing is owed when nothing more
// is to be looked at. The caller holds apply, and no snapshot is between Prepare and
// Commit: connections are judged by the plan in force.
func (e *Enforcer) cutAgain() error {
	now, due := e.now(), recheck{pods: map[policy.PodRef]bool{}, review: map[policy.PodRef]lostPeers{}}
	n := 0
	for ; n < len(e.rechecks) && !e.rechecks[n].due.After(now); n++ {
		r := e.rechecks[n]
		maps.Copy(due.pods, r.pods)
		for ref, lost := range r.review {
			due.review[ref] = due.review[ref].and(&lost)
		}
		for _, a := range r.gone {
			// The next pod that has the address keeps what it opened meanwhile.
			if ref, taken := e.snapshot.Pod(a); taken && e.plan[ref] != nil {
				due.pods[ref] = true
			} else {
				due.gone = append(due.gone, a)
			}
		}
	}
	if err := e.cut(due.pods, due.review, due.gone); err != nil {
		return err
	}
	if e.rechecks = e.rechecks[n:]; len(e.rechecks) > 0 {
		return nil
	}
	return e.settled()
}

// recheckDue cuts again what is due. A Commit does it by itself.
func (e *Enforcer) recheckDue(ctx context.Context) {
	if !e.apply.TryLock() {
		return
	}
	defer e.apply.Unlock()
	if len(e.rechecks) == 0 || e.rechecks[0].due.After(e.now()) || !e.whole || e.coming != e.snapshot {
		return
	}
	if err := e.cutAgain(); err != nil && ctx.Err() == nil {
		e.log.Error("connections that were admitted while others were cut are not looked at again; trying again", "error", err)
	}
}
