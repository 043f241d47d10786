package timed

// The kernel counts in an element with a quota the packets that match it. The quota stays when the
// timeout of the element moves in place. An element that an earlier agent wrote has no quota. In
// a set with such elements, changes in place replace elements until a listing finds none.

// lacksUses tells whether a listing found entries in a set for which the kernel notes nothing,
// although it can.
func (s *Store) lacksUses(set string) bool {
	_, lacks := s.unnoted.Load(set)
	return lacks && s.notesUses.Load()
}

// noted takes in whether a set of a listing has such entries.
func (s *Store) noted(set string, part []Entry) {
	lacks := false
	for i := range part {
		lacks = lacks || part[i].unnoted
		part[i].unnoted = false
	}
	if lacks {
		s.unnoted.Store(set, true)
	} else {
		s.unnoted.Delete(set)
	}
}
