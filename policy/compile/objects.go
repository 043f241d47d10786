package compile

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type policyKey struct{ namespace, name string }

// namespaced is a pointer to an object of a namespace.
type namespaced interface {
	comparable
	metav1.Object
}

func keyOf(o metav1.Object) policyKey { return policyKey{o.GetNamespace(), o.GetName()} }

// object is an object as it was seen and read last.
type object[F namespaced, M member] struct {
	key  policyKey
	from F
	read M
	seen uint64 // the compile that saw it last
}

// objects is every object of one namespaced kind that the compiler knows, F, read as M.
type objects[F namespaced, M member] struct {
	same   func(was F, now F) bool // they say the same; the key is the same
	read   func(F) M
	counts func(M) bool // it may select pods; nil: each may
	known  map[policyKey]*object[F, M]
	order  []*object[F, M] // in the order of the last input
	spaces map[string]*space[M]
}

// changes is what came and went in one space.
type changes[M member] struct {
	gone  map[M]bool
	added []M
}

// update takes in all objects of compile number, and brings the spaces up to date. It calls visit with
// each object. Of two of one name the first counts; for the other, twice is true.
func (o *objects[F, M]) update(number uint64, all []F, visit func(m M, twice bool)) {
	changed := map[string]*changes[M]{}
	note := func(k *object[F, M], gone bool) {
		if o.counts != nil && !o.counts(k.read) {
			return
		}
		c := changed[k.key.namespace]
		if c == nil {
			c = &changes[M]{gone: map[M]bool{}}
			changed[k.key.namespace] = c
		}
		if gone {
			c.gone[k.read] = true
		} else {
			c.added = append(c.added, k.read)
		}
	}
	present, order := 0, slices.Grow(o.order[:0], len(all))
	for i, from := range all {
		if from == *new(F) {
			continue
		}
		var k *object[F, M]
		if i < len(o.order) && o.order[i].from == from { // most are where they were: no need to search
			k = o.order[i]
		} else {
			k = o.known[keyOf(from)]
		}
		switch {
		case k == nil:
			k = &object[F, M]{key: keyOf(from), from: from, read: o.read(from)}
			o.known[k.key] = k
			note(k, false)
		case k.seen == number:
			visit(k.read, true)
			continue
		case k.from != from && !o.same(k.from, from):
			note(k, true)
			k.read = o.read(from)
			note(k, false)
		}
		k.from, k.seen = from, number
		present++
		visit(k.read, false)
		order = append(order, k)
	}
	clear(o.order[min(len(order), len(o.order)):]) // keeps nothing of objects that are gone
	o.order = order
	if present < len(o.known) {
		for key, k := range o.known {
			if k.seen != number {
				delete(o.known, key)
				note(k, true)
			}
		}
	}
	for name, c := range changed {
		sp := o.spaces[name]
		if sp == nil {
			sp = &space[M]{name: name}
			o.spaces[name] = sp
		}
		if sp.apply(number, c.gone, c.added); len(sp.members) == 0 {
			delete(o.spaces, name)
		}
	}
}
