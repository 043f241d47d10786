package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unique"
)

// gather is how long the writer waits after a write for lines to write at once.
// A quiet node's line is written at once, that of a busy one so much later.
const gather = 5 * time.Millisecond

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
	// Queue is how many bytes of lines may wait; 0 is 8 MiB.
	Queue int
	// Filter says which lines are written from the start.
	Filter Filter
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger gets a warning when lines begin to be lost, and a message when they are
	// written again; nil for none.
	Logger *slog.Logger
}

// sink takes whole lines.
type sink interface {
	// write writes the lines or, with an error, perhaps a part of them: so many
	// bytes that are whole lines.
	write(lines []byte) (whole int, err error)
	close() error
}

// Log takes records from any goroutine and writes them on its own.
type Log struct {
	node    string // as a line has it
	sink    sink
	queue   queue
	room    sync.Pool     // of *[]byte, to encode a line in
	wake    chan struct{} // ends the writer's waiting
	done    chan struct{}
	dropped atomic.Uint64
	written atomic.Uint64
	losses  losses // the writer's
	live    live
	now     func() time.Time
	// filter is nil where every line is written.
	filter   atomic.Pointer[compiledFilter]
	filtered atomic.Uint64
}

// Open starts a log. The error names the file that cannot be opened.
func Open(o Options) (*Log, error) {
	if o.Path == "" {
		return start(o, stream{os.Stdout}), nil
	}
	f, err := openFile(o.defaults())
	if err != nil {
		return nil, err
	}
	return start(o, f), nil
}

// To starts a log that writes to w, which it does not close.
func To(w io.Writer, o Options) *Log { return start(o, stream{w}) }

// defaults sets the defaults.
func (o Options) defaults() Options {
	if o.Queue <= 0 {
		o.Queue = queueBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func start(o Options, s sink) *Log {
	o = o.defaults()
	l := &Log{
		node: nodeField(o.Node), sink: s,
		queue:  newQueue(o.Queue),
		live:   newLive(),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		losses: losses{now: o.Now, log: o.Logger},
		now:    o.Now,
	}
	l.Filter(o.Filter)
	go l.run()
	return l
}

// Write queues the record's line and returns at once. If its subject has
// no room in the queue, or the log is closed, the record is dropped and counted.
func (l *Log) Write(r Record) {
	if f := l.filter.Load(); f != nil {
		if t := traitOf(&r); !f.keeps(&t) {
			l.filtered.Add(1)
			return
		}
	}
	// Encoded before the queue's lock is taken, so that callers do not wait for
	// each other.
	room := l.take()
	l.put(unique.Make(r.Pod), room, appendLine((*room)[:0], l.node, &r))
}

// WriteFlow queues the flow's line as Write does. It has read f when it returns.
func (l *Log) WriteFlow(f *Flow) {
	if by := l.filter.Load(); by != nil && !by.keepsFlow(f) {
		l.filtered.Add(1)
		return
	}
	room := l.take()
	l.put(unique.Make(f.Pod), room, appendFlow((*room)[:0], l.node, f))
}

// take returns room to encode a line in.
func (l *Log) take() *[]byte {
	room, _ := l.room.Get().(*[]byte)
	if room == nil {
		room = new([]byte)
	}
	return room
}

// put queues the line of a subject, which was encoded in room, and keeps the room.
func (l *Log) put(of subject, room *[]byte, line []byte) {
	ok, wake := l.queue.put(of, line)
	if !ok {
		l.dropped.Add(1)
	}
	if wake {
		l.rouse()
	}
	if cap(line) <= batchBytes {
		*room = line
		l.room.Put(room)
	}
}

// rouse ends the writer's waiting, or its next if it is at work.
func (l *Log) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Dropped returns how many records were lost: to a full queue, a full disk or a
// reader of the standard output that stopped reading.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Written returns how many records were written.
func (l *Log) Written() uint64 { return l.written.Load() }

// Filtered returns how many records and flows a Filter held back.
func (l *Log) Filtered() uint64 { return l.filtered.Load() }

// Close writes the queued lines and closes the file. It returns ctx's error if the writer
// is stuck (for example on a full pipe); its records are then lost.
func (l *Log) Close(ctx context.Context) error {
	l.queue.close()
	l.rouse()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the audit log: %d records unwritten: %w", l.queue.unwritten(), ctx.Err())
	}
}

// run writes until the queue is closed and empty. After the last batch it lets
// some more lines come together, so that a busy node pays for few writes.
func (l *Log) run() {
	defer close(l.done)
	pause := time.NewTimer(gather)
	for {
		b, more, closed := l.queue.take()
		switch {
		case b != nil:
			l.flush(b)
			if !more {
				pause.Reset(gather)
				l.wait(pause.C)
			}
		case closed:
			l.live.close()
			_ = l.sink.close() // there is no caller to report it to
			return
		default:
			l.wait(nil)
		}
	}
}

func (l *Log) flush(b *batch) {
	l.live.add(b, l.now(), l.queue.refusals()) // first: followers also get lines that a full disk loses
	whole, err := l.sink.write(b.lines)
	l.live.wrote()
	lost := uint64(0)
	if err != nil {
		lost = uint64(b.count - bytes.Count(b.lines[:whole], []byte{'\n'}))
	}
	l.dropped.Add(lost)
	l.written.Add(uint64(b.count) - lost)
	l.losses.note(lost, err)
	l.queue.wrote()
	l.queue.give(b)
}

// wait returns when there is something to do, or the pause is over.
func (l *Log) wait(pause <-chan time.Time) {
	select {
	case <-l.wake:
	case <-pause:
	}
}

// stream is a writer that is no file of ours, such as the standard output.
type stream struct{ w io.Writer }

func (s stream) write(lines []byte) (whole int, err error) {
	n, err := s.w.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (s stream) close() error { return nil }
