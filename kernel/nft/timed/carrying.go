package timed

import (
	"slices"
	"sync"
)

// carrying notes the ops that come while a table made anew takes over the entries of the one
// before. Those ops changed the table before, of which the entries are read already: they are
// applied once more, in their order, to the new table.
type carrying struct {
	underWay sync.RWMutex // each op holds it
	on       bool         // changed by the holder of all of underWay
	mu       sync.Mutex
	ops      []Op
}

// begin waits for the ops that are under way, and has later ones noted.
func (c *carrying) begin() {
	c.underWay.Lock()
	defer c.underWay.Unlock()
	c.on = true
}

// note is called before ops are applied, done after it.
func (c *carrying) note(ops []Op) (done func()) {
	c.underWay.RLock()
	if c.on {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, op := range ops {
			op.Entries = slices.Clone(op.Entries)
			c.ops = append(c.ops, op)
		}
	}
	return c.underWay.RUnlock
}

// end notes no more ops, and applies those that were noted. Later ops wait: without end, ops
// that come as fast as they are applied would be noted for ever.
func (c *carrying) end(apply func([]Op)) {
	c.underWay.Lock()
	defer c.underWay.Unlock()
	apply(c.ops)
	c.on, c.ops = false, nil
}

// Carry runs write, which makes the table anew with the entries that are there, and returns ops that are to
// follow. The ops of ApplyEntries meanwhile are applied to the new table too.
func (s *Store) Carry(write func() ([]Op, error)) error {
	s.carrying.begin()
	carried, err := write()
	s.carrying.end(func(noted []Op) {
		if err == nil {
			s.apply(append(carried, noted...))
		}
	})
	return err
}
