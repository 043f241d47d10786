package share

import "sync"

// Slots counts what holders have at a time. The zero value is ready.
type Slots[K comparable] struct {
	mu  sync.Mutex
	all int
	of  map[K]int
}

// Acquire takes a slot for a holder, unless the holder has each of them or all holders have all. release, which is called
// once, gives the slot back, and is nil without a slot. own is how many the holder had before.
func (s *Slots[K]) Acquire(k K, each, all int) (release func(), own int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own = s.of[k]; own >= each || s.all >= all {
		return nil, own
	}
	s.add(k, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(k, -1)
	}, own
}

func (s *Slots[K]) add(k K, n int) {
	if s.of == nil {
		s.of = map[K]int{}
	}
	s.all += n
	if s.of[k] += n; s.of[k] == 0 {
		delete(s.of, k)
	}
}
