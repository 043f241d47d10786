package compile

import (
	"encoding/binary"
	"slices"
	"strings"
)

// member selects pods of a namespace: a policy, or the cluster policies of one subject. It is
// immutable; one that is read again has another serial.
type member interface {
	comparable
	id() string // the order
	number() uint64
}

// space is the members that may select the pods of one namespace, sorted, and the changes among
// them in the running compile.
type space[M member] struct {
	name    string
	members []M
	changed uint64 // the last compile that found a change
	gone    map[M]bool
	added   []M // sorted
}

// apply brings the members up to date after changes that compile number found.
func (sp *space[M]) apply(number uint64, gone map[M]bool, added []M) {
	slices.SortFunc(added, func(a, b M) int { return strings.Compare(a.id(), b.id()) })
	sp.changed, sp.gone, sp.added = number, gone, added
	sp.members = replaced(sp.members, gone, added)
}

// replaced returns the sorted union of members without gone, and added.
func replaced[M member](members []M, gone map[M]bool, added []M) []M {
	union := make([]M, 0, len(members)+len(added))
	for _, m := range members {
		if gone[m] {
			continue
		}
		for len(added) > 0 && added[0].id() < m.id() {
			union, added = append(union, added[0]), added[1:]
		}
		union = append(union, m)
	}
	return append(union, added...)
}

// union is the members that select a pod. What is made of them embeds it.
type union[M member] struct {
	members []M
	serial  uint64 // of itself
	used    uint64 // the compile that used it last
}

func (u *union[M]) base() *union[M] { return u }

// made is made of the members that select a pod; its zero value is made of none.
type made[M member] interface {
	comparable
	base() *union[M]
}

// selections keeps, for one kind of members, what is made of those that select a pod, for all pods
// with the same. U is that.
type selections[M member, U made[M]] struct {
	make   func(members []M) U
	unions map[string]U // by the serials of their members
	alike  map[string]U // of the running compile: by the space, the union before and the added members
	serial uint64       // of the last union
}

// of returns what is made of the members of a space, nil for none, that select a pod. Where known,
// was is that of the last compile under the same labels, and only changes are looked at, once for
// all pods that were and become alike.
func (s *selections[M, U]) of(number uint64, sp *space[M], was U, known bool, selects func(M) bool) U {
	var none U
	switch {
	case sp == nil:
		return none
	case !known:
		return s.union(number, selecting(sp.members, selects))
	case sp.changed != number:
		return s.use(number, was)
	}
	var old []M
	var serial uint64
	if was != none {
		old, serial = was.base().members, was.base().serial
	}
	added := selecting(sp.added, selects)
	key := serials(added, binary.LittleEndian.AppendUint64([]byte(sp.name+"/"), serial))
	u, done := s.alike[string(key)]
	if done {
		return u
	}
	if u = was; len(added) > 0 || slices.ContainsFunc(old, func(m M) bool { return sp.gone[m] }) {
		u = s.union(number, replaced(old, sp.gone, added))
	}
	if s.alike == nil {
		s.alike = map[string]U{}
	}
	s.alike[string(key)] = u
	return s.use(number, u)
}

// union returns what is made of members.
func (s *selections[M, U]) union(number uint64, members []M) (u U) {
	if len(members) == 0 {
		return u
	}
	key := serials(members, make([]byte, 0, 8*len(members)))
	u, there := s.unions[string(key)]
	if !there {
		u = s.make(members)
		s.serial++
		*u.base() = union[M]{members: members, serial: s.serial}
		s.unions[string(key)] = u
	}
	return s.use(number, u)
}

func (s *selections[M, U]) use(number uint64, u U) U {
	if u != *new(U) {
		u.base().used = number
	}
	return u
}

// forget drops what the compile did not use.
func (s *selections[M, U]) forget(number uint64) {
	s.alike = nil
	for key, u := range s.unions {
		if u.base().used != number {
			delete(s.unions, key)
		}
	}
}

func selecting[M member](members []M, selects func(M) bool) (found []M) {
	for _, m := range members {
		if selects(m) {
			found = append(found, m)
		}
	}
	return found
}

func serials[M member](members []M, key []byte) []byte {
	for _, m := range members {
		key = binary.LittleEndian.AppendUint64(key, m.number())
	}
	return key
}
