package kube

import (
	"maps"
	"reflect"
	"slices"
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
	entries map[string]*T // by "namespace/name"
	keys    []string      // of entries, sorted; nil when one came or went
	filled  bool          // by Replace, once
	news    bool          // something changed since the last take

	// The fields below are for the goroutine that takes the entries.
	taken    []*T // nil before the first
	problems []policy.Problem
}

var _ cache.TransformingStore = &store[podEntry]{}

func newStore[T any](changed func(), read func(object any, before *T) *T) *store[T] {
	return &store[T]{read: read, changed: changed, entries: map[string]*T{}}
}

// Transformer returns the function by which the reflector trims objects while it gathers
// a streamed list; nil for none.
func (s *store[T]) Transformer() cache.TransformFunc { return s.trim }

// Add takes in a new object; it never fails.
func (s *store[T]) Add(object any) error { return s.Update(object) }

// Update takes in a changed object; it never fails.
func (s *store[T]) Update(object any) error {
	s.put(object, s.read)
	return nil
}

// Delete forgets an object; it never fails.
func (s *store[T]) Delete(object any) error {
	s.put(object, func(any, *T) *T { return nil })
	return nil
}

func (s *store[T]) put(object any, read func(any, *T) *T) {
	key, ok := keyOf(object)
	if !ok {
		return
	}
	s.mu.Lock()
	before := s.entries[key]
	after := read(object, before)
	news := !same(before, after)
	if news {
		if s.entries[key] = after; after == nil {
			delete(s.entries, key)
		}
		if s.news = true; before == nil || after == nil {
			s.keys = nil
		}
	}
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// Replace takes in all objects there are; the others are gone. It never fails.
func (s *store[T]) Replace(objects []any, _ string) error {
	s.mu.Lock()
	all, news := make(map[string]*T, len(objects)), !s.filled
	for i, object := range objects {
		objects[i] = nil // the list is the store's, and the object is not needed any more
		key, ok := keyOf(object)
		if !ok {
			continue
		}
		before := s.entries[key]
		after := s.read(object, before)
		if same(before, after) {
			after = before
		} else {
			news = true
		}
		if after != nil {
			all[key] = after
		}
	}
	news = news || len(all) < len(s.entries)
	if s.filled = true; news {
		s.entries, s.keys, s.news = all, nil, true
	}
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return nil
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
	return len(s.entries) > 0
}

// take takes the entries, sorted by key, if they changed since the last call. input tells whether compiles
// read the change.
func (s *store[T]) take() (news, input bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.news {
		return false, false
	}
	if s.keys == nil {
		s.keys = slices.Sorted(maps.Keys(s.entries))
	}
	entries := make([]*T, len(s.keys))
	for i, key := range s.keys {
		entries[i] = s.entries[key]
	}
	input = s.written == nil || !slices.EqualFunc(s.taken, entries, func(a, b *T) bool { return a == b || s.written(a, b) })
	s.news, s.taken = false, entries
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
