package flows

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// RecheckSet has the addresses in the kernel whose connections are still to be rechecked:
// connections from the address, and connections to it as a peer.
type RecheckSet interface {
	ListRecheck(ctx context.Context) ([]netip.Addr, error)
	// ChangeRecheck adds addresses or removes them. After an error some may be added or removed.
	ChangeRecheck(ctx context.Context, addrs []netip.Addr, remove bool) error
}

// Record writes the addresses of all subjects, and addrs, to the kernel, so that a later
// agent rechecks their connections. It is called before the rules that allow less are in
// force.
func (q *Queue) Record(addrs ...netip.Addr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range addrs {
		q.unrecorded[a] = true
	}
	if err := q.write(q.unrecorded, true); err != nil {
		return err
	}
	clear(q.unrecorded)
	return nil
}

// write adds the addresses to the kernel's set, or removes them.
func (q *Queue) write(addrs map[netip.Addr]bool, recorded bool) error {
	var changes []netip.Addr
	for a := range addrs {
		if q.recorded[a] != recorded {
			changes = append(changes, a)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := q.kernel.ChangeRecheck(context.Background(), changes, !recorded); err != nil {
		return err
	}
	for _, a := range changes {
		if recorded {
			q.recorded[a] = true
		} else {
			delete(q.recorded, a)
		}
	}
	return nil
}

// Recover reads the set of an earlier agent. Its addresses are removed with this agent's
// own: the first Run must recheck them too.
func (q *Queue) Recover() (map[netip.Addr]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	recorded, err := q.kernel.ListRecheck(context.Background())
	if err != nil {
		return nil, err
	}
	for _, a := range recorded {
		q.recorded[a] = true
	}
	return maps.Clone(q.recorded), nil
}

// Recorded returns the addresses in the kernel's set, sorted.
func (q *Queue) Recorded() []netip.Addr {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.SortedFunc(maps.Keys(q.recorded), netip.Addr.Compare)
}
