package audit

import (
	"math"
	"sync"
	"time"
)

const (
	// queueLength is how many records wait for the writer at most: a tenth of a
	// second of the busiest node.
	queueLength = 8192
	// queueBytes is how long the waiting lines may be together.
	queueBytes = 8 << 20
	// batchBytes is how long the lines of one write are together at most, but for
	// a single line that is longer.
	batchBytes = 64 << 10
	// spareBatches is how many empty batches are kept for reuse.
	spareBatches = 16
)

// batch is lines that are written at once.
type batch struct {
	lines []byte
	count int
	added time.Time // when the live log got the last of the lines
	next  *batch
}

// queue holds encoded lines in the order of their arrival, in batches. Its lock
// is held for the copy of one line.
type queue struct {
	mu     sync.Mutex
	last   *batch // where the next line goes, nil if nothing waits
	count  int    // of lines that wait
	bytes  int    // of them
	rouse  int    // the count at which the writer is woken, never if it was
	closed bool
	most   int // the bound of count
	first  *batch
	spare  *batch
	spares int
	held   int // lines of the batch that the writer has taken
}

// never is a count that is not reached.
const never = math.MaxInt

// put appends a line unless the queue is full or closed, and tells whether the
// writer is to be woken: at most once for each time that it waits.
func (q *queue) put(line []byte) (ok, wake bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.count >= q.most || q.count > 0 && q.bytes+len(line) > queueBytes {
		return false, false
	}
	b := q.last
	if b == nil || cap(b.lines)-len(b.lines) < len(line) {
		b = q.add(len(line))
	}
	b.lines = append(b.lines, line...)
	b.count++
	q.bytes += len(line)
	q.count++
	if q.count < q.rouse {
		return true, false
	}
	q.rouse = never
	return true, true
}

// add puts an empty batch with room for so many bytes at the end.
func (q *queue) add(room int) *batch {
	b := q.spare
	if b != nil && room <= cap(b.lines) {
		q.spare, b.next = b.next, nil
		q.spares--
	} else {
		b = &batch{lines: make([]byte, 0, max(room, batchBytes))}
	}
	if q.last == nil {
		q.first = b
	} else {
		q.last.next = b
	}
	q.last = b
	return b
}

// take gives the writer the oldest batch, nil if nothing waits, and tells whether there
// are more. From then on a half full queue wakes the writer, so that it can pause between
// batches; after an empty take the first line wakes it.
func (q *queue) take() (b *batch, more, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b = q.first
	if b == nil {
		q.rouse = 1
		return nil, false, q.closed
	}
	q.first, b.next = b.next, nil
	q.count -= b.count
	q.bytes -= len(b.lines)
	q.held = b.count
	if q.first == nil {
		q.last = nil
		q.rouse = max(q.most/2, 1)
	}
	return b, q.first != nil, q.closed
}

// wrote tells that the batch that was taken is written.
func (q *queue) wrote() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = 0
}

// give takes a free batch back.
func (q *queue) give(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spares == spareBatches || cap(b.lines) > batchBytes {
		return
	}
	b.lines, b.count = b.lines[:0], 0
	b.next, q.spare = q.spare, b
	q.spares++
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
