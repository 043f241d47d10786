package share

import "github.com/hashicorp/golang-lru/v2/simplelru"

// Recent has values of subjects, each under a key: the oldest values of a subject make room for its newest, and subjects
// without new values for subjects beyond a number. It needs a lock around it.
type Recent[K, I comparable, V any] struct {
	bound Bound
	of    *simplelru.LRU[K, *simplelru.LRU[I, V]]
	all   int // values
}

// NewRecent returns a Recent without values, for so many subjects.
func NewRecent[K, I comparable, V any](b Bound, subjects int) *Recent[K, I, V] {
	r := &Recent[K, I, V]{bound: b}
	r.of, _ = simplelru.NewLRU(subjects, func(_ K, of *simplelru.LRU[I, V]) { r.all -= of.Len() }) // the only error is for a size below one
	return r
}

// Put makes a value the newest of a subject, in place of the one under its key.
func (r *Recent[K, I, V]) Put(k K, i I, v V) {
	own, known := r.of.Get(k)
	if !known {
		own, _ = simplelru.NewLRU[I, V](r.bound.Each, nil)
		r.of.Add(k, own)
	}
	if !own.Contains(i) {
		for ; own.Len() > 0 && r.bound.Room(own.Len(), r.all) < 1; r.all-- {
			own.RemoveOldest()
		}
		r.all++
	}
	own.Add(i, v)
}

// Get returns the value of a subject under a key.
func (r *Recent[K, I, V]) Get(k K, i I) (v V, known bool) {
	if own, has := r.of.Peek(k); has {
		v, known = own.Peek(i)
	}
	return v, known
}

// Of returns the values of a subject, the newest last.
func (r *Recent[K, I, V]) Of(k K) []V {
	own, known := r.of.Peek(k)
	if !known {
		return nil
	}
	return own.Values()
}

// Under returns the values of all subjects under a key.
func (r *Recent[K, I, V]) Under(i I) (out []V) {
	for _, own := range r.of.Values() {
		if v, known := own.Peek(i); known {
			out = append(out, v)
		}
	}
	return out
}

// Len returns the number of values and of subjects.
func (r *Recent[K, I, V]) Len() (values, subjects int) { return r.all, r.of.Len() }
