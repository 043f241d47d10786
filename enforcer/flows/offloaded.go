package flows

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/conntrack"
)

// unload has the packets of a connection without admission judged, if a flow table of another program
// forwards them past all rules. A kernel that does not remove the connection gives one of TCP back after
// a reset, and any after 30 s without a packet. The connection is looked for again in either case.
func (q *Queue) unload(f conntrack.Flow) error {
	if !f.Offloaded {
		return nil
	}
	if !slices.ContainsFunc(q.offloaded, f.Same) {
		q.offloaded = append(q.offloaded, f)
	}
	q.again = q.now().Add(packetGrace)
	err := q.conns.Delete(f)
	if conntrack.IsBusy(err) {
		if err = nil; f.Protocol == unix.IPPROTO_TCP {
			q.reset(f)
		}
	}
	return err
}

// offloadedDue tells whether withdrawn connections are to be looked for in flow tables.
func (q *Queue) offloadedDue() bool { return len(q.offloaded) > 0 && !q.again.After(q.now()) }

// lookForOffloaded unloads connections that are in a flow table still. The caller holds mu.
func (q *Queue) lookForOffloaded() error {
	if !q.offloadedDue() {
		return nil
	}
	query := conntrack.Query{Mask: q.bit}
	for _, f := range q.offloaded {
		query.Sources = append(query.Sources, f.Src.Addr())
	}
	listed, err := q.conns.Flows(query)
	if err != nil {
		return err
	}
	last := q.offloaded
	q.offloaded = nil
	for _, f := range listed {
		if !slices.ContainsFunc(last, f.Same) {
			continue
		}
		if err := q.unload(f); err != nil {
			q.offloaded = last
			return err
		}
	}
	return nil
}

// NotCut returns the withdrawn connections whose packets a flow table may still forward.
func (q *Queue) NotCut() []conntrack.Flow {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.offloaded)
}
