package audit

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// queueLength is how many records wait for the writer at most: at some 400
// bytes each that is a few MiB, and a second of the busiest node.
const queueLength = 8192

// batchBytes is when encoded lines are written even though more are waiting.
const batchBytes = 64 << 10

// Options say where a log goes. The zero value is the standard output.
type Options struct {
	// Node is the name of the node, in every line.
	Node string
	// Path is the file; "" is the standard output.
	Path string
	// Size is the bytes at which the file is rotated; 0 never rotates.
	Size int64
	// Keep is how many rotated files stay, as Path.1 (the newest), Path.2, …
	Keep int
	// Queue is how many records may wait; 0 is 8192.
	Queue int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// sink takes whole lines.
type sink interface {
	// write writes the lines or, with an error, perhaps a part of them.
	write(lines []byte) error
	reopen() error
	close() error
}

// Log takes records from any goroutine and writes them on its own.
type Log struct {
	node    string
	queue   chan Record
	sink    sink
	mu      sync.RWMutex // held for reading while a record is queued
	closed  bool
	done    chan struct{}
	again   chan struct{} // asks for a reopen
	dropped atomic.Uint64
	written atomic.Uint64
}

// Open starts a log. The error names the file that cannot be opened.
func Open(o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Path == "" {
		return start(o, stream{os.Stdout}), nil
	}
	f, err := openFile(o)
	if err != nil {
		return nil, err
	}
	return start(o, f), nil
}

// To starts a log that writes to w, which it does not close.
func To(w io.Writer, o Options) *Log { return start(o, stream{w}) }

func start(o Options, s sink) *Log {
	if o.Queue <= 0 {
		o.Queue = queueLength
	}
	l := &Log{
		node: o.Node, sink: s,
		queue: make(chan Record, o.Queue),
		done:  make(chan struct{}),
		again: make(chan struct{}, 1),
	}
	go l.run()
	return l
}

// Write queues the record and returns at once. If the queue is full or the log
// closed the record is dropped and counted.
func (l *Log) Write(r Record) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.closed {
		select {
		case l.queue <- r:
			return
		default:
		}
	}
	l.dropped.Add(1)
}

// Dropped returns how many records were lost: to a full queue, a full disk or a
// reader of the standard output that stopped reading.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Written returns how many records were written.
func (l *Log) Written() uint64 { return l.written.Load() }

// Reopen makes the writer open the file anew, for rotation by another program.
// It returns at once; a failure leaves the open file in use. A file that was
// renamed or removed is also noticed without it.
func (l *Log) Reopen() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Close writes what is queued and closes the file. It returns ctx's error if the
// writer is stuck (a full pipe, say); the records it still holds are then lost.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the audit log: %d records unwritten: %w", len(l.queue), ctx.Err())
	}
}

// run encodes and writes until the queue is closed and empty. A batch goes out
// when nothing more is waiting, so a quiet node's line is there at once.
func (l *Log) run() {
	defer close(l.done)
	var batch []byte
	lines := uint64(0)
	flush := func() {
		if lines == 0 {
			return
		}
		if err := l.sink.write(batch); err != nil {
			l.dropped.Add(lines)
		} else {
			l.written.Add(lines)
		}
		batch, lines = batch[:0], 0
	}
	for {
		select {
		case r, open := <-l.queue:
			if !open {
				flush()
				_ = l.sink.close() // nobody is left to tell
				return
			}
			batch = appendRecord(batch, l.node, &r)
			lines++
			if len(l.queue) == 0 || len(batch) >= batchBytes {
				flush()
			}
		case <-l.again:
			_ = l.sink.reopen() // the old file goes on
		}
	}
}

// stream is a writer that cannot be reopened, such as the standard output.
type stream struct{ w io.Writer }

func (s stream) write(lines []byte) error {
	n, err := s.w.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	return err
}

func (s stream) reopen() error { return nil }

func (s stream) close() error { return nil }
