package share

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRoom: each subject has its least, whatever the others hold, none has more than the most of
// one, and all together hold no more than the most of all and each one's least.
func TestRoom(t *testing.T) {
	for range 200 {
		b := Bound{Least: 1 + rand.IntN(4), Each: 5 + rand.IntN(100), All: 100 + rand.IntN(1000)}
		held, total := make([]int, 2+rand.IntN(50)), 0
		change := func(i, n int) { held[i], total = held[i]+n, total+n }
		for range 5000 {
			i, n := 1+rand.IntN(len(held)-1), 1+rand.IntN(5)
			switch {
			case rand.IntN(3) == 0:
				change(i, -min(n, held[i]))
			case b.Room(held[i], total) >= n:
				change(i, n)
			}
			if held[i] > b.Each || total > b.All+len(held)*b.Least {
				t.Fatalf("%+v: a subject holds %d, all %d", b, held[i], total)
			}
		}
		for b.Room(held[0], total) > 0 { // the last to come
			change(0, 1)
		}
		if held[0] < b.Least {
			t.Errorf("%+v: %v: the first finds room for %d", b, held, held[0])
		}
	}
	// Subjects that all hold what they can have the same.
	b, held, total := Bound{Least: 16, Each: 512, All: 4096}, make([]int, 20), 0
	for range 512 {
		for i := range held {
			if b.Room(held[i], total) > 0 {
				held[i], total = held[i]+1, total+1
			}
		}
	}
	if least, most := slices.Min(held), slices.Max(held); least < 4096/21-1 || most > least+1 {
		t.Errorf("20 subjects hold %v", held)
	}
}

// TestQueueLikeItsTwin: a queue that searches for the next item.
func TestQueueLikeItsTwin(t *testing.T) {
	type item struct{ of, n int }
	for range 100 {
		var q Queue[int, item]
		var all []item  // of each subject in order
		var turns []int // of subjects with items
		has := func(k int) bool { return slices.ContainsFunc(all, func(i item) bool { return i.of == k }) }
		for n := range 500 {
			k := rand.IntN(6)
			switch rand.IntN(5) {
			case 0, 1:
				if !has(k) {
					turns = append(turns, k)
				}
				q.Push(k, item{k, n})
				all = append(all, item{k, n})
			case 2:
				if !has(k) {
					turns = append(turns, k)
				}
				q.PushFront(k, item{k, n})
				all = append([]item{{k, n}}, all...)
			default:
				barred := rand.IntN(12) // no subject, where it is none
				next := slices.IndexFunc(turns, func(k int) bool { return k != barred })
				got, what, ok := q.NextOf(func(k int) bool { return k != barred })
				if ok != (next >= 0) {
					t.Fatalf("an item: %v, %d subjects have some", ok, len(turns))
				}
				if !ok {
					continue
				}
				k = turns[next]
				turns = slices.Delete(turns, next, next+1)
				at := slices.IndexFunc(all, func(i item) bool { return i.of == k })
				if got != k || what != all[at] {
					t.Fatalf("%d %v is next, want %v", got, what, all[at])
				}
				if all = slices.Delete(all, at, at+1); has(k) {
					turns = append(turns, k)
				}
			}
			if q.Len() != len(all) || q.Subjects() != len(turns) {
				t.Fatalf("%d items of %d subjects, want %d of %d", q.Len(), q.Subjects(), len(all), len(turns))
			}
		}
	}
}

// TestSlots: a holder and all have no more slots than they may, and what is given back is free.
func TestSlots(t *testing.T) {
	var s Slots[int]
	held, all := make([][]func(), 5), 0
	for range 10000 {
		k := rand.IntN(len(held))
		if n := len(held[k]); n > 0 && rand.IntN(3) == 0 {
			held[k][n-1]()
			held[k], all = held[k][:n-1], all-1
			continue
		}
		release, own := s.Acquire(k, 6, 20)
		if n := len(held[k]); own != n || (release != nil) != (n < 6 && all < 20) {
			t.Fatalf("a holder of %d, of %d in all: own %d, a slot: %v", n, all, own, release != nil)
		}
		if release != nil {
			held[k], all = append(held[k], release), all+1
		}
	}
	for _, of := range held {
		for _, release := range of {
			release()
		}
	}
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("%d slots of %d holders are not free", s.all, len(s.of))
	}
}
