package kube

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
)

// shelf holds what is used of the objects of one kind. It is the store that a
// reflector fills. An entry that says the same as before keeps its memory, and is no
// change.
type shelf[T any] struct {
	// read returns what is used of an object, nil if it is none of ours. It is
	// given the entry that was there before, to share what did not change.
	read    func(object any, before *T) *T
	changed func() // called after each change

	mu      sync.Mutex
	entries map[string]*T // by "namespace/name"
	version uint64        // counts changes
	filled  bool          // by Replace, once
}

func newShelf[T any](changed func(), read func(object any, before *T) *T) *shelf[T] {
	return &shelf[T]{read: read, changed: changed, entries: map[string]*T{}}
}

// Add takes in a new object; it never fails.
func (s *shelf[T]) Add(object any) error { return s.Update(object) }

// Update takes in a changed object; it never fails.
func (s *shelf[T]) Update(object any) error {
	key, ok := keyOf(object)
	if ok {
		s.put(key, func(before *T) *T { return s.read(object, before) })
	}
	return nil
}

// Delete forgets an object; it never fails.
func (s *shelf[T]) Delete(object any) error {
	key, ok := keyOf(object)
	if ok {
		s.put(key, func(*T) *T { return nil })
	}
	return nil
}

func (s *shelf[T]) put(key string, next func(before *T) *T) {
	s.mu.Lock()
	before := s.entries[key]
	after := next(before)
	news := !same(before, after)
	if news {
		s.version++
		if after == nil {
			delete(s.entries, key)
		} else {
			s.entries[key] = after
		}
	}
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// Replace takes in all objects there are; the others are gone. It never fails.
func (s *shelf[T]) Replace(objects []any, _ string) error {
	s.mu.Lock()
	all := make(map[string]*T, len(objects))
	news := !s.filled
	s.filled = true
	for _, object := range objects {
		key, ok := keyOf(object)
		if !ok {
			continue
		}
		before := s.entries[key]
		after := s.read(object, before)
		if after == nil {
			continue
		}
		if same(before, after) {
			after = before
		} else {
			news = true
		}
		all[key] = after
	}
	news = news || len(all) != len(s.entries)
	if news {
		s.entries = all
		s.version++
	}
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return nil
}

// Resync does nothing: there is nobody to tell again.
func (s *shelf[T]) Resync() error { return nil }

func (s *shelf[T]) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filled
}

// since returns the entries sorted by key and their version, unless that is version.
func (s *shelf[T]) since(version uint64) ([]*T, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version {
		return nil, version, false
	}
	list := make([]*T, 0, len(s.entries))
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		list = append(list, s.entries[key])
	}
	return list, s.version, true
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
