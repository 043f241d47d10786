package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"
)

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
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
	if l.Dropped() != 1 {
		t.Error("a record after the close is not counted as dropped")
	}
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

func TestStuckReaderBlocksNobody(t *testing.T) {
	w := stuck{make(chan struct{}, 10), make(chan struct{})}
	l := To(w, Options{Queue: 4})
	l.Write(example(t))
	<-w.entered
	for range 100 {
		l.Write(example(t)) // would hang if it waited
	}
	if l.Dropped() != 96 {
		t.Errorf("dropped %d", l.Dropped())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	close(w.open)
	closeLog(t, l)
	if l.Written() != 5 {
		t.Errorf("written %d", l.Written())
	}
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
		for l.Written()+l.Dropped() != uint64(i+1) {
			time.Sleep(time.Millisecond) // one batch a record
		}
	}
	closeLog(t, l)
	if l.Written() != 3 || l.Dropped() != 3 {
		t.Errorf("written %d, dropped %d", l.Written(), l.Dropped())
	}
}

func TestWritersFromManyGoroutines(t *testing.T) {
	var out bytes.Buffer
	l := To(&out, Options{Queue: 10})
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

func TestShortWriteIsAnError(t *testing.T) {
	if err := (stream{short{}}).write([]byte("line\n")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}

type short struct{}

func (short) Write(p []byte) (int, error) { return len(p) - 1, nil }

func BenchmarkWrite(b *testing.B) {
	l := To(io.Discard, Options{})
	r := example(b)
	b.ReportAllocs()
	for b.Loop() {
		l.Write(r)
	}
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
}
