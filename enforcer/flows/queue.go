package flows

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/kernel/conntrack"
)

// packetGrace is longer than a packet takes from the first hook to the last one, without
// the time in another program's queue. A packet is judged before conntrack confirms its
// connection, and a connection that is not confirmed is in no listing; a packet that was
// judged before the change stays admitted. So each subject's connections are listed a
// second time when every such packet has arrived.
const packetGrace = time.Second

// Connections is the part of connection tracking that a Queue needs.
type Connections interface {
	Flows(q conntrack.Query) ([]conntrack.Flow, error)
	SetMark(f conntrack.Flow, value, mask uint32) error
	Delete(f conntrack.Flow) error
}

// Judge tells whether a connection is allowed, that is judged again for a reason.
type Judge func(conntrack.Flow, Reason) bool

// Queue is the connections that are to be judged again.
type Queue struct {
	conns  Connections
	kernel RecheckSet
	bit    uint32 // the mark bit of admitted connections
	reset  func(conntrack.Flow)
	now    func() time.Time

	mu         sync.Mutex
	pending    subjects
	second     []look              // judged once, the earliest first
	offloaded  []conntrack.Flow    // withdrawn, and in a flow table when they were last looked for
	again      time.Time           // when these are looked for again
	recorded   map[netip.Addr]bool // in the kernel
	unrecorded map[netip.Addr]bool // of pending, for Record to write
}

// look is a second look at subjects.
type look struct {
	due      time.Time
	subjects subjects
}

// New returns an empty queue. reset has a segment with RST pass from the source of a connection of TCP:
// a flow table gives the connection back to the rules.
func New(conns Connections, kernel RecheckSet, bit uint32, reset func(conntrack.Flow), now func() time.Time) *Queue {
	return &Queue{conns: conns, kernel: kernel, bit: bit, reset: reset, now: now, pending: newSubjects(), recorded: map[netip.Addr]bool{}, unrecorded: map[netip.Addr]bool{}}
}

// Recheck has connections of pod addresses judged by the next Run. With PeersLost these
// are the connections to peers, which each of the pods lost.
func (q *Queue) Recheck(why Reason, pods []netip.Addr, peers ...netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range pods {
		q.pending.why[a] = max(q.pending.why[a], why)
		if why != PeersLost {
			q.unrecorded[a] = true
		}
	}
	if len(peers) == 0 {
		return
	}
	lost := map[netip.Addr]bool{}
	for _, a := range pods {
		lost[a] = true
	}
	same := func(pods map[netip.Addr]bool) bool { return maps.Equal(pods, lost) }
	for _, a := range peers {
		q.unrecorded[a] = true
		// Until a roll-out succeeds, each one says what the last one said.
		if !slices.ContainsFunc(q.pending.lost[a], same) {
			q.pending.lost[a] = append(q.pending.lost[a], lost)
		}
	}
}

// RecheckLater has connections of addresses judged by the next second check: addresses that come in a second share a
// listing. A later agent does not recheck them.
func (q *Queue) RecheckLater(why Reason, addrs []netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.second) == 0 && len(addrs) > 0 {
		q.second = []look{{q.now().Add(packetGrace), newSubjects()}}
	}
	for _, a := range addrs {
		last := q.second[len(q.second)-1].subjects
		last.why[a] = max(last.why[a], why)
	}
}

// Run judges the connections of all subjects, and once more those of earlier subjects
// whose second check is due, with one listing. It must follow the write of the rules that
// judge speaks for. After an error it is to be called again. When no second check is
// left, the recheck set is emptied.
func (q *Queue) Run(judge Judge) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.lookForOffloaded(); err != nil {
		return err
	}
	all, now, n := newSubjects(), q.now(), 0
	all.merge(q.pending, PodRemoved)
	for ; n < len(q.second) && !q.second[n].due.After(now); n++ {
		// The next pod of an address keeps the connections that it opened meanwhile.
		all.merge(q.second[n].subjects, RulesLost)
	}
	if err := q.cut(all, judge); err != nil {
		return err
	}
	q.second = q.second[n:]
	if len(q.pending.why) > 0 {
		q.second = append(q.second, look{q.now().Add(packetGrace), q.pending})
		q.pending = newSubjects()
		clear(q.unrecorded)
	}
	if len(q.second) > 0 {
		return nil
	}
	return q.write(q.recorded, false)
}

// Due tells whether a second check is due, or another look for offloaded connections, or addresses are
// left in the recheck set that the kernel did not remove after the last one. It is not meaningful between Record and
// Run.
func (q *Queue) Due() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.offloadedDue() {
		return true
	}
	if len(q.second) == 0 {
		return len(q.recorded) > 0
	}
	return !q.second[0].due.After(q.now())
}

// Withdraw takes the admission of every connection of the addresses back, at once.
func (q *Queue) Withdraw(addrs []netip.Addr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := newSubjects()
	for _, a := range addrs {
		s.why[a] = PodRemoved
	}
	return q.cut(s, nil)
}

// Settle gives connections of a query an admission, or takes it back, as admits says, at once.
func (q *Queue) Settle(query conntrack.Query, admits func(conntrack.Flow) bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mark(query, admits)
}

func (q *Queue) mark(query conntrack.Query, admits func(conntrack.Flow) bool) error {
	flows, err := q.conns.Flows(query)
	for _, f := range flows {
		admitted := f.Mark&q.bit != 0
		if err != nil || admits(f) == admitted {
			continue
		}
		value := q.bit
		if admitted {
			value = 0
		}
		if err = q.conns.SetMark(f, value, q.bit); err == nil && admitted {
			err = q.unload(f)
		}
	}
	return err
}

// Admit judges the connections of addresses that have no admission, and admits the
// allowed ones. A second check of a pod that had an address before does not judge them as new ones.
func (q *Queue) Admit(addrs []netip.Addr, judge func(conntrack.Flow) bool) error {
	if len(addrs) == 0 {
		return nil
	}
	q.mu.Lock()
	for _, l := range q.second {
		for _, a := range addrs {
			if l.subjects.why[a] == PodRemoved {
				l.subjects.why[a] = PolicyChanged
			}
		}
	}
	q.mu.Unlock()
	return q.mark(conntrack.Query{Sources: addrs, Mask: q.bit}, judge)
}

// cut withdraws the admission of the subjects' connections that judge denies. The kernel
// is asked once for all of them, and not at all without subjects.
func (q *Queue) cut(s subjects, judge Judge) error {
	if len(s.why) == 0 {
		return nil
	}
	query := conntrack.Query{Mark: q.bit, Mask: q.bit, Sources: slices.Collect(maps.Keys(s.why))}
	if s.peersAlone() {
		query.Peers = slices.Collect(maps.Keys(s.lost))
	}
	return q.mark(query, func(f conntrack.Flow) bool {
		why := s.why[f.Src.Addr()]
		return !s.concern(f) || why != PodRemoved && judge(f, why)
	})
}
