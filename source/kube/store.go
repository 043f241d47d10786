package kube

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/namegate/namegate/policy"
)

// store holds the used fields of the objects of one kind. It is the store that a
// reflector fills. An entry equal to the previous one keeps its memory, and is no change.
type store[T any] struct {
	// read returns the used fields of an object, nil to ignore it. It gets the previous
	// entry, to share its unchanged parts.
	read    func(object any, before *T) *T
	changed func() // called after each change
	// written tells whether a change is of the status of an object and its version alone, which
	// no compile reads. nil: none is.
	written func(before, after *T) bool
	// trim returns an object that says the same to read and takes less memory, for
	// the time in which all are gathered. It may be nil.
	trim cache.TransformFunc

	mu      sync.Mutex
	keys    []string // "namespace/name", sorted
	entries []*T     // of the keys; replaced or changed in place, never passed out
	filled  bool     // by Replace, once
	news    bool     // something changed since the last take

	// The fields below are for the goroutine that takes the entries.
	taken    []*T // nil before the first
	problems []policy.Problem
}

var _ cache.TransformingStore = &store[podEntry]{}

func newStore[T any](changed func(), read func(object any, before *T) *T) *store[T] {
	return &store[T]{read: read, changed: changed}
}

// Transformer returns the function by which the reflector trims objects while it gathers
// a streamed list; nil for none.
func (s *store[T]) Transformer() cache.TransformFunc { return s.trim }

// Add takes in a new object; it never fails.
func (s *store[T]) Add(object any) error { return s.Update(object) }

// Update takes in a changed object; it never fails.
func (s *store[T]) Update(object any) error {
	key, ok := keyOf(object)
	if ok {
		s.put(key, func(before *T) *T { return s.read(object, before) })
	}
	return nil
}

// Delete forgets an object; it never fails.
func (s *store[T]) Delete(object any) error {
	key, ok := keyOf(object)
	if ok {
		s.put(key, func(*T) *T { return nil })
	}
	return nil
}

// entry returns the entry of a key, nil if there is none, and its place.
func (s *store[T]) entry(key string) (int, *T) {
	i, there := slices.BinarySearch(s.keys, key)
	if !there {
		return i, nil
	}
	return i, s.entries[i]
}

func (s *store[T]) put(key string, next func(before *T) *T) {
	s.mu.Lock()
	i, before := s.entry(key)
	after := next(before)
	news := !same(before, after)
	switch {
	case !news:
	case after == nil:
		s.keys, s.entries = slices.Delete(s.keys, i, i+1), slices.Delete(s.entries, i, i+1)
	case before == nil:
		s.keys, s.entries = slices.Insert(s.keys, i, key), slices.Insert(s.entries, i, after)
	default:
		s.entries[i] = after
	}
	s.news = s.news || news
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// Replace takes in all objects there are; the others are gone. It never fails.
func (s *store[T]) Replace(objects []any, _ string) error {
	s.mu.Lock()
	keys, entries, kept := s.readAll(objects)
	news := !s.filled || kept < len(keys) || kept < len(s.keys)
	if news {
		s.keys, s.entries, s.news = keys, entries, true
	}
	s.filled = true
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return nil
}

// readAll returns the entries of objects, sorted by key, and how many of them are the
// previous entries.
func (s *store[T]) readAll(objects []any) (keys []string, entries []*T, kept int) {
	type keyed struct {
		key   string
		entry *T
	}
	all := make([]keyed, 0, len(objects))
	for i, object := range objects {
		objects[i] = nil // the list is the store's, and the object is not needed any more
		key, ok := keyOf(object)
		if !ok {
			continue
		}
		_, before := s.entry(key)
		after := s.read(object, before)
		if after == nil {
			continue
		}
		if same(before, after) {
			after = before
			kept++
		}
		all = append(all, keyed{key, after})
	}
	slices.SortFunc(all, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	keys, entries = make([]string, len(all)), make([]*T, len(all))
	for i, k := range all {
		keys[i], entries[i] = k.key, k.entry
	}
	return keys, entries, kept
}

// Resync does nothing: there are no event handlers.
func (s *store[T]) Resync() error { return nil }

func (s *store[T]) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filled
}

// some tells whether there are entries.
func (s *store[T]) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys) > 0
}

// take takes the entries, sorted by key, if they changed since the last call. input tells whether compiles
// read the change.
func (s *store[T]) take() (news, input bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.news {
		return false, false
	}
	input = s.written == nil || !slices.EqualFunc(s.taken, s.entries, func(a, b *T) bool { return a == b || s.written(a, b) })
	s.news, s.taken = false, slices.Clone(s.entries)
	return true, input
}

func same[T any](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(a, b)
}

func keyOf(object any) (string, bool) {
	m, err := meta.Accessor(object)
	if err != nil {
		return "", false
	}
	return m.GetNamespace() + "/" + m.GetName(), true
}
