package flows

import (
	"maps"
	"net/netip"
	"slices"
)

// Debts are the addresses in the kernel whose connections are still to be judged again:
// connections from the address, and connections to it as a peer.
type Debts interface {
	Owed() ([]netip.Addr, error)
	// Owe adds addresses, Settle removes them, all of one family. After an error some may be
	// added or removed.
	Owe(addrs ...netip.Addr) error
	Settle(addrs ...netip.Addr) error
}

// Owe writes the addresses of all subjects, and addrs, to the kernel: an agent after this
// one judges their connections again. It is called before the rules that allow less are in
// force.
func (q *Queue) Owe(addrs ...netip.Addr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range addrs {
		q.unowed[a] = true
	}
	if err := q.write(q.unowed, true, q.debts.Owe); err != nil {
		return err
	}
	clear(q.unowed)
	return nil
}

// write makes the kernel have the addresses, or not.
func (q *Queue) write(addrs map[netip.Addr]bool, owed bool, write func(...netip.Addr) error) error {
	for _, v6 := range []bool{false, true} {
		var changes []netip.Addr
		for a := range addrs {
			if a.Is6() == v6 && q.owed[a] != owed {
				changes = append(changes, a)
			}
		}
		if len(changes) == 0 {
			continue
		}
		if err := write(changes...); err != nil {
			return err
		}
		for _, a := range changes {
			if owed {
				q.owed[a] = true
			} else {
				delete(q.owed, a)
			}
		}
	}
	return nil
}

// Recover reads the debts that an earlier agent left. They are removed with this agent's
// own: its first Run must judge them too.
func (q *Queue) Recover() (map[netip.Addr]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	owed, err := q.debts.Owed()
	if err != nil {
		return nil, err
	}
	for _, a := range owed {
		q.owed[a] = true
	}
	return maps.Clone(q.owed), nil
}

// Owed are the addresses that the kernel has.
func (q *Queue) Owed() []netip.Addr {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.owed))
}
