package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// mustPut queues a line and tells whether the writer is to be woken.
func mustPut(t *testing.T, q *queue, line []byte) bool {
	t.Helper()
	ok, wake := q.put(line)
	if !ok {
		t.Fatalf("refused with %d lines of %d bytes waiting", q.count, q.bytes)
	}
	return wake
}

func TestQueueWakesTheWriterOncePerWait(t *testing.T) {
	q := &queue{most: 8}
	line := []byte("line\n")
	steps := []struct {
		take  bool // by the writer, else a caller puts
		wakes bool
	}{
		{take: true}, // nothing there: it waits for the first line
		{wakes: true}, {}, {}, {}, {},
		{take: true}, // all of them: it pauses until the queue is half full
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
		if wake := mustPut(t, q, line); wake != s.wakes {
			t.Errorf("step %d: woken %v", i, wake)
		}
	}
}

func TestQueueIsBoundInRecords(t *testing.T) {
	q := &queue{most: 3}
	line := []byte("line\n")
	for range 3 {
		mustPut(t, q, line)
	}
	if ok, wake := q.put(line); ok || wake {
		t.Error("a fourth is taken")
	}
	b, _, _ := q.take()
	if b.count != 3 || q.unwritten() != 3 {
		t.Errorf("took %d, unwritten %d", b.count, q.unwritten())
	}
	mustPut(t, q, line) // the writer's batch does not count as waiting
	if q.unwritten() != 4 {
		t.Errorf("unwritten %d", q.unwritten())
	}
	q.wrote()
	if q.unwritten() != 1 {
		t.Errorf("unwritten %d", q.unwritten())
	}
}

func TestQueueIsBoundInBytes(t *testing.T) {
	q := &queue{most: 1000}
	mustPut(t, q, make([]byte, queueBytes+1)) // a line longer than all may be: better than none
	if ok, _ := q.put([]byte("line\n")); ok {
		t.Error("another is taken")
	}
	b, _, _ := q.take()
	q.give(b)
	if q.spare != nil {
		t.Error("a batch of unusual size is kept")
	}
	line := make([]byte, queueBytes/16)
	for range 16 {
		mustPut(t, q, line)
	}
	if ok, _ := q.put([]byte("\n")); ok {
		t.Error("more bytes than the bound")
	}
}

func TestQueueRefusesAfterClose(t *testing.T) {
	q := &queue{most: 3}
	mustPut(t, q, []byte("line\n"))
	q.close()
	if ok, _ := q.put([]byte("late\n")); ok {
		t.Error("taken")
	}
	if b, _, closed := q.take(); b == nil || !closed {
		t.Errorf("took %v, closed %v", b, closed)
	}
	if b, _, closed := q.take(); b != nil || !closed {
		t.Errorf("took %v, closed %v", b, closed)
	}
}

// TestQueueLikeAList: random puts and takes give every line once and in order, in
// batches of whole lines that are no longer than one write may be.
func TestQueueLikeAList(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	q := &queue{most: 400}
	var list [][]byte
	sum, full, long := 0, 0, 0
	for i := range 60000 {
		if r.IntN(300) > 0 {
			line := append(bytes.Repeat([]byte("x"), r.IntN(2000)), fmt.Sprintf("%d\n", i)...)
			if r.IntN(500) == 0 {
				line = append(bytes.Repeat([]byte("y"), batchBytes), line...)
				long++
			}
			ok, _ := q.put(line)
			if want := len(list) < q.most && (sum+len(line) <= queueBytes || sum == 0); ok != want {
				t.Fatalf("put %v with %d lines of %d bytes waiting", ok, len(list), sum)
			}
			if !ok {
				full++
				continue
			}
			list, sum = append(list, line), sum+len(line)
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
			list, sum = list[b.count:], sum-len(want)
			if more != (len(list) > 0) {
				t.Fatalf("more %v, though %d wait", more, len(list))
			}
			q.give(b)
		}
	}
	if full == 0 || long == 0 || q.spares > spareBatches {
		t.Errorf("full %d times, %d long lines, %d spare batches", full, long, q.spares)
	}
}

func TestQueueTakesNoMemory(t *testing.T) {
	q := &queue{most: queueLength}
	line := bytes.Repeat([]byte("x"), 600)
	round := func() {
		for range 1000 { // ten batches
			q.put(line)
		}
		for more := true; more; {
			var b *batch
			b, more, _ = q.take()
			q.give(b)
		}
	}
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations for 1000 lines", n)
	}
}
