package audit

import (
	"math"
	"slices"
	"sync"
	"unique"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/share"
)

const (
	// queueBytes is how long the lines that wait for the writer may be together: about a tenth
	// of a second of the busiest node.
	queueBytes = 8 << 20
	// batchBytes is how long the lines of one write are together at most, but for
	// a single line that is longer.
	batchBytes = 64 << 10
	// spareBatches is how many empty batches are kept for reuse.
	spareBatches = 16
)

// waiting is the bound of the lines that wait for the writer, in bytes.
func waiting(all int) share.Bound {
	return share.Bound{Resource: "audit lines that wait to be written", Least: all / 512, Each: all / 2, All: all}
}

// subject is a pod, or the node, as a key that costs no look at its names.
type subject = unique.Handle[policy.PodRef]

// batch is lines that are written at once.
type batch struct {
	lines []byte
	count int
	runs  []run
}

// run is lines of one subject, one behind the other in a batch.
type run struct {
	of    subject
	bytes int
}

// queue holds encoded lines in the order of their arrival, in batches. Its lock
// is held for the copy of one line.
type queue struct {
	mu      sync.Mutex
	bound   share.Bound
	of      map[subject]int // bytes that wait
	refused map[string]bool // the namespaces of refused lines
	batches []*batch        // that wait; the next line goes to the last
	count   int             // of lines that wait
	bytes   int             // of them
	rouse   int             // the bytes at which the writer is woken, never if it was
	closed  bool
	held    int      // lines of the batch that the writer has taken
	spare   []*batch // empty ones, at most spareBatches
}

// newQueue returns a queue for so many bytes.
func newQueue(all int) queue {
	return queue{bound: waiting(all), of: map[subject]int{}}
}

// never is a number of bytes that is not reached.
const never = math.MaxInt

// put appends a line of a subject, unless the subject has no room or the queue is closed, and
// tells whether the writer is to be woken: at most once for each time that it waits.
func (q *queue) put(of subject, line []byte) (ok, wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.of[of]
	if q.closed || q.bytes > 0 && q.bound.Room(own, q.bytes) < len(line) {
		if q.refused == nil {
			q.refused = map[string]bool{}
		}
		q.refused[of.Value().Namespace] = true
		return false, false
	}
	b := q.room(len(line))
	b.lines = append(b.lines, line...)
	b.count++
	if n := len(b.runs) - 1; n >= 0 && b.runs[n].of == of {
		b.runs[n].bytes += len(line)
	} else {
		b.runs = append(b.runs, run{of, len(line)})
	}
	q.of[of] = own + len(line)
	q.bytes += len(line)
	q.count++
	if q.bytes < q.rouse {
		return true, false
	}
	q.rouse = never
	return true, true
}

// room returns the batch for a line of so many bytes: the last one, or an empty one behind it.
func (q *queue) room(bytes int) *batch {
	if n := len(q.batches); n > 0 && cap(q.batches[n-1].lines)-len(q.batches[n-1].lines) >= bytes {
		return q.batches[n-1]
	}
	var b *batch
	if n := len(q.spare); n > 0 {
		b, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		b = &batch{}
	}
	if cap(b.lines) < bytes {
		b.lines = make([]byte, 0, max(bytes, batchBytes))
	}
	q.batches = append(q.batches, b)
	return b
}

// take gives the writer the oldest batch, nil if nothing waits, and tells whether there
// are more. From then on lines of half of what one subject may have wake the writer, so that it
// can pause between batches; after an empty take the first line wakes it.
func (q *queue) take() (b *batch, more, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		q.rouse = 1
		return nil, false, q.closed
	}
	b = q.batches[0]
	q.batches = slices.Delete(q.batches, 0, 1)
	q.count -= b.count
	q.bytes -= len(b.lines)
	for _, r := range b.runs {
		if own := q.of[r.of] - r.bytes; own > 0 {
			q.of[r.of] = own
		} else {
			delete(q.of, r.of)
		}
	}
	q.held = b.count
	if more = len(q.batches) > 0; !more {
		q.rouse = max(q.bound.Each/2, 1)
	}
	return b, more, q.closed
}

// wrote tells that the batch that was taken is written.
func (q *queue) wrote() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = 0
}

// give takes a free batch back, unless it is of unusual size.
func (q *queue) give(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.spare) == spareBatches || cap(b.lines) > batchBytes {
		return
	}
	b.lines, b.count, b.runs = b.lines[:0], 0, b.runs[:0]
	q.spare = append(q.spare, b)
}

// refusals returns the namespaces of the lines that were refused since the last call.
func (q *queue) refusals() map[string]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.refused
	q.refused = nil
	return of
}

// close refuses all further lines.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// unwritten returns how many lines wait or are in the writer's hands.
func (q *queue) unwritten() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count + q.held
}
