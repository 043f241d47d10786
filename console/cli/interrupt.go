package cli

import (
	"context"
	"errors"
	"io"
	"sync"
)

var errInterrupted = errors.New("interrupted")

// interruptible reads from r until ctx ends, also where r waits for somebody to type:
// the signals that end ctx do not end the program by themselves. Nothing of r is taken
// before it is asked for.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	begin := sync.OnceFunc(func() {
		stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(errInterrupted) })
		go func() {
			_, err := io.Copy(in, r)
			stop()
			_ = in.CloseWithError(err)
		}()
	})
	return readFunc(func(p []byte) (int, error) {
		begin()
		return out.Read(p)
	})
}

// readFunc is an io.Reader.
type readFunc func([]byte) (int, error)

// Read calls the function.
func (f readFunc) Read(p []byte) (int, error) { return f(p) }
