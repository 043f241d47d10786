package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal.If(t, l.Close(ctx))
}

func TestCloseFlushes(t *testing.T) {
	var out bytes.Buffer
	l := To(&out, Options{Node: "node-1"})
	const n = 500
	for range n {
		l.Write(example(t))
	}
	closeLog(t, l)
	if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != n || l.Written() != n || l.Dropped() != 0 {
		t.Errorf("%d lines, written %d, dropped %d", lines, l.Written(), l.Dropped())
	}
	l.Write(example(t))
	diff.Equal(t, 1, l.Dropped(), "dropped; a record after the close is one")
	closeLog(t, l) // twice is fine
}

// stuck is a writer that waits until it is opened, as on a full pipe.
type stuck struct {
	entered chan struct{}
	open    chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.open
	return len(p), nil
}

func TestStuckReaderBlocksNoWriter(t *testing.T) {
	w := stuck{make(chan struct{}, 10), make(chan struct{})}
	r := example(t)
	l := To(w, Options{Queue: 8 * len(appendRecord(nil, "", &r))})
	l.Write(r)
	<-w.entered
	for range 100 {
		l.Write(example(t)) // would hang if it waited
	}
	diff.Equal(t, 96, l.Dropped(), "dropped")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	diff.Is(t, context.DeadlineExceeded, l.Close(ctx), "close")
	close(w.open)
	closeLog(t, l)
	diff.Equal(t, 5, l.Written(), "written")
}

type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	f.n++
	if f.n%2 == 1 {
		return 0, errors.New("no space")
	}
	return len(p), nil
}

func TestFailedWritesAreCounted(t *testing.T) {
	l := To(&failing{}, Options{})
	for i := range 6 {
		l.Write(example(t))
		fatal.Await(t, "a batch of each record", func() bool { return l.Written()+l.Dropped() == uint64(i+1) })
	}
	closeLog(t, l)
	if l.Written() != 3 || l.Dropped() != 3 {
		t.Errorf("written %d, dropped %d", l.Written(), l.Dropped())
	}
}

// gated is a writer that tells of each write and waits until it may go on.
type gated struct {
	wrote chan []byte
	open  chan struct{}
}

func newGated() gated { return gated{make(chan []byte, 100), make(chan struct{}, 100)} }

func (g gated) Write(p []byte) (int, error) {
	g.wrote <- bytes.Clone(p)
	<-g.open
	return len(p), nil
}

// next returns the next write.
func (g gated) next(t *testing.T) []byte {
	t.Helper()
	select {
	case p := <-g.wrote:
		return p
	case <-time.After(time.Minute):
		t.Fatal("nothing is written")
		return nil
	}
}

// TestQuietLineNeedsNoOther: a line is written though no other and no close follows.
func TestQuietLineNeedsNoOther(t *testing.T) {
	g := newGated()
	l := To(g, Options{})
	for i := range 5 {
		l.Write(example(t))
		diff.Equal(t, 1, bytes.Count(g.next(t), []byte("\n")), "lines of write", i)
		g.open <- struct{}{} // the next line comes while the writer pauses
	}
	closeLog(t, l)
}

func TestLinesGather(t *testing.T) {
	g := newGated()
	l := To(g, Options{})
	l.Write(example(t))
	g.next(t)
	for range 50 {
		l.Write(example(t))
	}
	g.open <- struct{}{}
	g.open <- struct{}{}
	diff.Equal(t, 50, bytes.Count(g.next(t), []byte("\n")), "lines at once")
	closeLog(t, l)
	if len(g.wrote) != 0 || l.Written() != 51 {
		t.Errorf("%d more writes, written %d", len(g.wrote), l.Written())
	}
}

// TestSlicesAreFreeAfterWrite: after Write the caller may change the record's slices.
func TestSlicesAreFreeAfterWrite(t *testing.T) {
	g := newGated()
	l := To(g, Options{Node: "node-1"})
	l.Write(example(t))
	g.next(t)
	r := example(t)
	want := appendRecord(nil, "node-1", &r)
	l.Write(r)
	r.Answers[0], r.Chain[0], r.Matches[0] = Answer{}, "", nil
	g.open <- struct{}{}
	g.open <- struct{}{}
	if got := g.next(t); !bytes.Equal(got, want) {
		t.Errorf("wrote %s, not %s", got, want)
	}
	closeLog(t, l)
}

func TestCloseReturnsTheNumberOfUnwrittenLines(t *testing.T) {
	g := newGated()
	l := To(g, Options{})
	l.Write(example(t))
	g.next(t)
	for range 6 {
		l.Write(example(t))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	diff.Fails(t, " 7 records unwritten", l.Close(ctx), "close")
	close(g.open)
	closeLog(t, l)
}

func TestShortWriteIsAnError(t *testing.T) {
	if _, err := (stream{shortWriter{}}).write([]byte("line\n")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestWritersFromManyGoroutines(t *testing.T) {
	var out bytes.Buffer
	l := To(&out, Options{Queue: 10 << 10})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				l.Write(example(t))
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	if l.Written()+l.Dropped() != 1600 || uint64(bytes.Count(out.Bytes(), []byte("\n"))) != l.Written() {
		t.Errorf("written %d, dropped %d", l.Written(), l.Dropped())
	}
}
