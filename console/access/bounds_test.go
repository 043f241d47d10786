package access

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	next chan net.Conn
	done chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.next <- there
	return here
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// inMemory runs a server's bounds without sockets, by a clock of the test's.
func inMemory(t *testing.T, h http.Handler, f func(*testing.T, *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, accesstest.NewAPI(), nil)
		p := newPipes()
		server := s.bounded(context.Background(), h)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(p) }()
		f(t, p)
		server.Close()
		<-done
		time.Sleep(time.Second) // the time that a refused connection stays
	})
}

// TestSilentCaller: a caller that sends nothing, or an incomplete request, is
// disconnected after some seconds.
func TestSilentCaller(t *testing.T) {
	for name, said := range map[string]string{"nothing": "", "half a header": "GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthor"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, http.NotFoundHandler(), func(t *testing.T, p *pipes) {
				c := p.dial()
				defer c.Close()
				begin := time.Now()
				_, err := io.WriteString(c, said)
				fatal.If(t, err)
				if _, err = io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Error(err)
				}
				if took := time.Since(begin); took < headerTime || took > headerTime+time.Second {
					t.Errorf("cut off after %v", took)
				}
			})
		})
	}
}

// TestIdleCaller: a connection without a question is closed after a while.
func TestIdleCaller(t *testing.T) {
	inMemory(t, http.NotFoundHandler(), func(t *testing.T, p *pipes) {
		c := p.dial()
		defer c.Close()
		_, err := io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
		fatal.If(t, err)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		fatal.If(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		begin := time.Now()
		_, _ = io.Copy(io.Discard, r)
		if took := time.Since(begin); took < idleTime-time.Second || took > idleTime+time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestLongHeader: a header beyond the bound is refused, one as long as a token is not.
func TestLongHeader(t *testing.T) {
	for size, want := range map[int]int{30 << 10: http.StatusOK, 200 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		inMemory(t, ok, func(t *testing.T, p *pipes) {
			c := p.dial()
			defer c.Close()
			go func() {
				_, _ = io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+strings.Repeat("x", size)+"\r\n\r\n")
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			fatal.If(t, err)
			diff.Equal(t, want, resp.StatusCode, size, "bytes", resp.Status)
		})
	}
}

// TestCallerThatReadsNothing: an answer that is not read ends; one that is read slowly
// continues.
func TestCallerThatReadsNothing(t *testing.T) {
	var ended chan error // of the bubble
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 8<<10)); err != nil {
				ended <- err
				return
			}
			w.(http.Flusher).Flush()
		}
	})
	inMemory(t, endless, func(t *testing.T, p *pipes) {
		ended = make(chan error, 1)
		c := p.dial()
		defer c.Close()
		_, err := io.WriteString(c, "GET /v1/audit HTTP/1.1\r\nHost: a\r\n\r\n")
		fatal.If(t, err)
		for range 10 {
			_, err := io.ReadFull(c, make([]byte, 16<<10))
			fatal.If(t, err)
			time.Sleep(writeTime - time.Second)
		}
		begin := time.Now()
		synctest.Wait()
		err = <-ended
		if took := time.Since(begin); !errors.Is(err, os.ErrDeadlineExceeded) || took > writeTime {
			t.Errorf("ended after %v: %v", took, err)
		}
	})
}
