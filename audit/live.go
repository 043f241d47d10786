package audit

import (
	"context"
	"io"
	"sync"
	"time"
)

// followBytes is how long the lines may be together that a Follower has not taken: a few
// thousand lines.
const followBytes = 1 << 20

// live is the view of a log while it is written. The writer takes its lock once a batch;
// Write never takes it.
type live struct {
	mu        sync.Mutex
	kept      keptLines
	followers map[*Follower]bool
	closed    bool
	coverage
}

func newLive() live { return live{kept: newKeptLines()} }

// add takes a batch that is about to be written. refused are the namespaces of lines that the
// queue has refused.
func (v *live) add(b *batch, now time.Time, refused map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.miss(refused, now)
	v.writing, v.began = true, now
	for f := range v.followers {
		f.add(b)
	}
	rest := b.lines
	for _, r := range b.runs {
		v.kept.add(r.of, rest[:r.bytes], now, &v.coverage)
		rest = rest[r.bytes:]
	}
}

// follow returns the lines that are kept, and a follower of the others.
func (v *live) follow() ([]byte, *Follower) {
	f := &Follower{live: v, wake: make(chan struct{}, 1)}
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.closed = v.closed; !v.closed {
		if v.followers == nil {
			v.followers = map[*Follower]bool{}
		}
		v.followers[f] = true
	}
	return v.kept.all(), f
}

// close ends all followers.
func (v *live) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for f := range v.followers {
		f.end()
	}
	v.followers = nil
}

// Follow returns the last lines of each subject, complete lines, the newest last, and a Follower of the lines that come
// after these: some hundred lines of a subject that has most of them, some ten where many subjects have lines. They
// include lines that could not be written, but no line that a Filter omitted.
func (l *Log) Follow() (recent []byte, f *Follower) { return l.live.follow() }

// Follower yields new lines of a log. It belongs to one goroutine. If more than 1 MiB of
// lines wait, further lines are lost to it: a log never waits for a follower.
type Follower struct {
	live *live
	wake chan struct{}
	// Under the lock of live:
	lines  []byte
	lost   uint64
	closed bool
	spare  []byte // what Next gave last, to be used again
}

// add takes a batch as a whole or not at all. The caller holds the lock. After a lost
// batch all further batches are lost until Next, so the gap is at the end.
func (f *Follower) add(b *batch) {
	if f.lost > 0 || len(f.lines)+len(b.lines) > followBytes {
		f.lost += uint64(b.count)
	} else {
		f.lines = append(f.lines, b.lines...)
	}
	f.rouse()
}

// end closes the follower; the caller holds the lock.
func (f *Follower) end() {
	f.closed = true
	f.rouse()
}

func (f *Follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next waits for lines and returns all that came since the last call, whole ones
// with their newlines, and how many were lost behind them. The lines are valid
// until the next call. The error is ctx's, or io.EOF once the log or the Follower is
// closed and all was taken; there are no lines with an error.
func (f *Follower) Next(ctx context.Context) (lines []byte, lost uint64, err error) {
	for {
		if lines, lost, err = f.taken(); len(lines) > 0 || lost > 0 || err != nil {
			return lines, lost, err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// taken returns what there is.
func (f *Follower) taken() (lines []byte, lost uint64, err error) {
	f.live.mu.Lock()
	defer f.live.mu.Unlock()
	lines, lost = f.lines, f.lost
	if len(lines) == 0 && lost == 0 && f.closed {
		return nil, 0, io.EOF
	}
	f.lines, f.spare, f.lost = f.spare[:0], lines, 0
	return lines, lost, nil
}

// Close ends the following; a Next that waits returns. It may be called by any
// goroutine, and more than once.
func (f *Follower) Close() {
	f.live.mu.Lock()
	defer f.live.mu.Unlock()
	delete(f.live.followers, f)
	f.end()
}
