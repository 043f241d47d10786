package consoletest

import (
	"context"
	"io"
	"sync"
)

// Tape is a serve.Follower that plays batches of lines.
type Tape struct {
	Batches chan Batch
	// Over is closed with the follower.
	Over   chan struct{}
	closed sync.Once
}

// Batch is lines that come at once, and how many are lost behind them.
type Batch struct {
	Lines string
	Lost  uint64
}

// NewTape returns a Tape with the first batches. It ends when Batches is closed.
func NewTape(batches ...Batch) *Tape {
	f := &Tape{Batches: make(chan Batch, 1024), Over: make(chan struct{})}
	for _, b := range batches {
		f.Batches <- b
	}
	return f
}

// Next waits for a batch.
func (f *Tape) Next(ctx context.Context) ([]byte, uint64, error) {
	select {
	case b, more := <-f.Batches:
		if !more {
			return nil, 0, io.EOF
		}
		return []byte(b.Lines), b.Lost, nil
	case <-f.Over:
		return nil, 0, io.EOF
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// Close ends the following.
func (f *Tape) Close() { f.closed.Do(func() { close(f.Over) }) }
