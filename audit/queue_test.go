package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unique"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// mustPut queues a line and tells whether the writer is to be woken.
func mustPut(t *testing.T, q *queue, of policy.PodRef, line []byte) bool {
	t.Helper()
	ok, wake := q.put(unique.Make(of), line)
	if !ok {
		t.Fatalf("refused with %d lines of %d bytes waiting", q.count, q.bytes)
	}
	return wake
}

func TestQueueWakesTheWriterOncePerWait(t *testing.T) {
	q := newQueue(2 * 8 * 5)
	line := []byte("line\n")
	steps := []struct {
		take  bool // by the writer, else a caller puts
		wakes bool
	}{
		{take: true}, // nothing there: it waits for the first line
		{wakes: true}, {}, {}, {}, {},
		{take: true}, // all of them: it pauses until a subject has half of its most
		{}, {}, {}, {wakes: true}, {}, {},
		{take: true},
		{},
		{take: true}, {take: true}, // and waits for the first line again
		{wakes: true}, {},
	}
	for i, s := range steps {
		if s.take {
			if b, more, _ := q.take(); more {
				t.Errorf("step %d: more than %q", i, b.lines)
			}
			continue
		}
		diff.Equal(t, s.wakes, mustPut(t, &q, policytest.Ref("a"), line), "step", i, "woken")
	}
}

// TestSubjectsShareTheQueue: a subject alone has half of it, and what it leaves free is for others.
func TestSubjectsShareTheQueue(t *testing.T) {
	q := newQueue(queueBytes)
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	fill := func(of policy.PodRef) (lines int) {
		for ok := true; ok; lines++ {
			ok, _ = q.put(unique.Make(of), line)
		}
		return lines - 1
	}
	first := fill(policytest.Ref("a"))
	diff.Equal(t, queueBytes/2/1000, first, "lines in the queue of a subject alone")
	second := fill(policytest.Ref("b"))
	diff.Equal(t, (queueBytes-first*1000)/2/1000, second, "lines of the second beside", first)
	if n := fill(policytest.Ref("c")); n < second/3 {
		t.Errorf("the third has %d", n)
	}
	if got := q.refusals(); len(got) != 1 || q.refusals() != nil {
		t.Errorf("lines of %v were refused", got)
	}
	for more := true; more; {
		_, more, _ = q.take()
	}
	if len(q.of) > 0 || q.bytes != 0 {
		t.Errorf("%v wait in an empty queue", q.of)
	}
	// The lines in the writer's hands do not count as waiting.
	if again := fill(policytest.Ref("a")); again != first || q.unwritten() <= first {
		t.Errorf("%d lines after the queue was taken, %d unwritten", again, q.unwritten())
	}
	q.wrote()
	diff.Equal(t, first, q.unwritten(), "unwritten")
}

// TestLongLineOfAnEmptyQueue: a line longer than all may be is better than none.
func TestLongLineOfAnEmptyQueue(t *testing.T) {
	q := newQueue(queueBytes)
	mustPut(t, &q, policytest.Ref("a"), make([]byte, queueBytes+1))
	if ok, _ := q.put(unique.Make(policytest.Ref("a")), []byte("line\n")); ok {
		t.Error("another is taken")
	}
	if ok, _ := q.put(unique.Make(policytest.Ref("b")), []byte("line\n")); !ok {
		t.Error("one of another subject is refused")
	}
	b, _, _ := q.take()
	q.give(b)
	diff.Empty(t, q.spare, "kept of a batch of unusual size")
}

// TestQueueLikeAList: random puts and takes give every line once and in order, in
// batches of whole lines that are no longer than one write may be.
func TestQueueLikeAList(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	q := newQueue(400 << 10)
	var list [][]byte
	var subjects []policy.PodRef // of them
	own := map[policy.PodRef]int{}
	sum, full, long := 0, 0, 0
	for i := range 60000 {
		if r.IntN(300) > 0 {
			line := append(bytes.Repeat([]byte("x"), r.IntN(2000)), fmt.Sprintf("%d\n", i)...)
			if r.IntN(500) == 0 {
				line = append(bytes.Repeat([]byte("y"), batchBytes), line...)
				long++
			}
			of := policytest.Ref(string(rune('a' + r.IntN(5))))
			ok, _ := q.put(unique.Make(of), line)
			if want := sum == 0 || own[of]+len(line) <= q.bound.Least || sum+own[of]+len(line) <= q.bound.All && own[of]+len(line) <= q.bound.All/2; ok != want {
				t.Fatalf("put %v with %d lines of %d bytes waiting", ok, len(list), sum)
			}
			if !ok {
				full++
				continue
			}
			list, subjects, sum = append(list, line), append(subjects, of), sum+len(line)
			own[of] += len(line)
			continue
		}
		for range r.IntN(12) {
			b, more, _ := q.take()
			if b == nil {
				if len(list) > 0 {
					t.Fatalf("nothing, though %d wait", len(list))
				}
				break
			}
			if len(b.lines) > batchBytes && b.count > 1 {
				t.Fatalf("%d lines of %d bytes at once", b.count, len(b.lines))
			}
			want := bytes.Join(list[:b.count], nil)
			if !bytes.Equal(b.lines, want) {
				t.Fatal("other lines than were put")
			}
			for i, of := range subjects[:b.count] {
				own[of] -= len(list[i])
			}
			list, subjects, sum = list[b.count:], subjects[b.count:], sum-len(want)
			diff.MustEqual(t, len(list) > 0, more, "more to come")
			q.give(b)
		}
	}
	if full == 0 || long == 0 || len(q.spare) > spareBatches {
		t.Errorf("full %d times, %d long lines, %d spare batches", full, long, len(q.spare))
	}
}

func TestQueueTakesNoMemory(t *testing.T) {
	q := newQueue(queueBytes)
	line := bytes.Repeat([]byte("x"), 600)
	pods := []policy.PodRef{policytest.Ref("a"), policytest.Ref("b")}
	round := func() {
		for i := range 1000 { // ten batches
			q.put(unique.Make(pods[i%2]), line)
		}
		for more := true; more; {
			var b *batch
			b, more, _ = q.take()
			q.give(b)
		}
	}
	diff.Equal(t, 0, testing.AllocsPerRun(10, round), "allocations for 1000 lines")
}
