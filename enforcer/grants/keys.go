package grants

import (
	"net/netip"
	"slices"
)

// keyParts is how many parts of keys go at a time: more than the writer can leave until the next time.
const keyParts = 16

// removeKeys removes a part of the keys that no grant has, and tells whether there are more.
func (t *Table) removeKeys() (more bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sets map[netip.Addr][]*set // of rules, by subject; nil until one is asked for
	return t.cfg.RemoveKeys(func(subject, a netip.Addr) bool {
		if sets == nil {
			sets = map[netip.Addr][]*set{}
			for s := range t.all() {
				if s.key.Rule != "" {
					sets[s.subject] = append(sets[s.subject], s)
				}
			}
		}
		return slices.ContainsFunc(sets[subject], func(s *set) bool { return s.at(a) != nil })
	})
}
