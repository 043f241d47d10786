package share

import "slices"

// Queue has items of subjects, and hands them out in turns: one of each subject that has any, in
// the order in which they came. The zero value is empty. It needs a lock around it.
type Queue[K comparable, T any] struct {
	of    map[K]*line[T]
	turns []K // of the subjects with items
	spare []*line[T]
	count int
}

// line is the items of one subject.
type line[T any] struct {
	items []T
	first int
}

// spareLines bounds how many empty lines a queue keeps.
const spareLines = 64

// Len returns the number of items.
func (q *Queue[K, T]) Len() int { return q.count }

// Subjects returns the number of subjects with items.
func (q *Queue[K, T]) Subjects() int { return len(q.of) }

// Push adds an item behind the others of its subject.
func (q *Queue[K, T]) Push(k K, item T) {
	l := q.line(k)
	l.items = append(l.items, item)
	q.count++
}

// PushFront adds an item before the others of its subject. The subject's turn stays.
func (q *Queue[K, T]) PushFront(k K, item T) {
	l := q.line(k)
	if l.first == 0 {
		l.items = append(l.items, item)
		copy(l.items[1:], l.items)
		l.items[0] = item
	} else {
		l.first--
		l.items[l.first] = item
	}
	q.count++
}

// line returns the line of a subject, which gets a turn behind the others where it has none.
func (q *Queue[K, T]) line(k K) *line[T] {
	l := q.of[k]
	if l != nil {
		return l
	}
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		l = &line[T]{}
	}
	if q.of == nil {
		q.of = map[K]*line[T]{}
	}
	q.of[k] = l
	q.turns = append(q.turns, k)
	return l
}

// Next removes and returns the first item of the subject whose turn it is. ok is false where the
// queue is empty.
func (q *Queue[K, T]) Next() (k K, item T, ok bool) {
	return q.NextOf(func(K) bool { return true })
}

// NextOf is Next where only subjects have a turn that may.
func (q *Queue[K, T]) NextOf(may func(K) bool) (k K, item T, ok bool) {
	turn := slices.IndexFunc(q.turns, may)
	if turn < 0 {
		return k, item, false
	}
	var none T
	k = q.turns[turn]
	q.turns = slices.Delete(q.turns, turn, turn+1)
	l := q.of[k]
	item, l.items[l.first] = l.items[l.first], none
	l.first++
	q.count--
	if l.first < len(l.items) {
		if l.first > len(l.items)/2 {
			n := copy(l.items, l.items[l.first:])
			clear(l.items[n:])
			l.items, l.first = l.items[:n], 0
		}
		q.turns = append(q.turns, k)
		return k, item, true
	}
	delete(q.of, k)
	if l.items, l.first = l.items[:0], 0; len(q.spare) < spareLines {
		q.spare = append(q.spare, l)
	}
	return k, item, true
}
