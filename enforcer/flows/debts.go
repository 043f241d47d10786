package flows

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/ipset"
)

// Sets is the part of ipset that a Queue needs.
type Sets interface {
	List(name string) ([]ipset.Entry, error)
	Add(name string, entries ...ipset.Entry) error
	Delete(name string, entries ...ipset.Entry) error
}

// Debts are the two sets that hold addresses whose connections are still to be judged
// again: connections from the address, and connections to it as a peer.
type Debts struct {
	Sets       Sets
	IPv4, IPv6 string // names
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
	if err := q.write(q.unowed, true, q.debts.Sets.Add); err != nil {
		return err
	}
	clear(q.unowed)
	return nil
}

// write makes the kernel's sets have the addresses, or not.
func (q *Queue) write(addrs map[netip.Addr]bool, owed bool, write func(set string, entries ...ipset.Entry) error) error {
	for _, name := range []string{q.debts.IPv4, q.debts.IPv6} {
		var entries []ipset.Entry
		for a := range addrs {
			if a.Is6() == (name == q.debts.IPv6) && q.owed[a] != owed {
				entries = append(entries, ipset.Entry{Addr: a})
			}
		}
		if len(entries) == 0 {
			continue
		}
		if err := write(name, entries...); err != nil {
			return err
		}
		for _, e := range entries {
			if owed {
				q.owed[e.Addr] = true
			} else {
				delete(q.owed, e.Addr)
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
	for _, name := range []string{q.debts.IPv4, q.debts.IPv6} {
		entries, err := q.debts.Sets.List(name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			q.owed[e.Addr] = true
		}
	}
	return maps.Clone(q.owed), nil
}

// Owed are the addresses that the kernel's sets hold.
func (q *Queue) Owed() []netip.Addr {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.owed))
}
