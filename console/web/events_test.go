package web

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/webtest"
)

// stream is one page's stream of events.
type stream struct {
	close func()
	mu    sync.Mutex
	of    map[string][]json.RawMessage // data by event
	empty int                          // lines
}

// pipeWriter is a response that a pipe takes.
type pipeWriter struct {
	*io.PipeWriter
	head   http.Header
	status int
}

func (w *pipeWriter) Header() http.Header    { return w.head }
func (w *pipeWriter) WriteHeader(status int) { w.status = status }
func (w *pipeWriter) Flush()                 {}

// stream opens a stream and reads it until it is closed.
func (o *opened) stream(t *testing.T) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	s := &stream{of: map[string][]json.RawMessage{}}
	var all sync.WaitGroup
	all.Go(func() {
		o.handler.ServeHTTP(&pipeWriter{in, http.Header{}, 0}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events", nil))
		in.Close()
	})
	all.Go(func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var event struct {
				Event string
				Data  json.RawMessage
			}
			if len(line) > 1 {
				if err := json.Unmarshal(line, &event); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
			s.mu.Lock()
			if len(line) == 1 {
				s.empty++
			} else {
				s.of[event.Event] = append(s.of[event.Event], event.Data)
			}
			s.mu.Unlock()
		}
	})
	s.close = func() { stop(); all.Wait() }
	synctest.Wait()
	return s
}

// take decodes the events of a name that came since the last call.
func take[T any](t *testing.T, s *stream, name string) (out []T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, data := range s.of[name] {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out = append(out, v)
	}
	delete(s.of, name)
	return out
}

// TestEvents: a page gets all edges at first, then changes alone, new lines, and agents when they change.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := nodeOf(t, 1)
		one.Log(dns("shop/cart-1", "www.example.org", "allowed"), flow("shop/cart-1", "192.0.2.9", "bank.test"))
		o := (&cluster{nodes: []*webtest.Node{one}, viewer: serve.Everything{}}).open(t, "")
		s := o.stream(t)
		defer s.close()
		first := take[Traffic](t, s, "traffic")
		if len(first) != 1 || !first[0].Full || len(first[0].Edges) != 2 || first[0].Total != 2 {
			t.Fatalf("the first event: %+v", first)
		}
		diff.Empty(t, take[NewLines](t, s, "lines"), "lines of before")
		if a := take[Agents](t, s, "agents"); len(a) != 1 || a[0].Agents[0].State != Well {
			t.Errorf("agents: %+v", a)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		one.Log(dns("shop/cart-1", "new.test", "unmatched"))
		time.Sleep(time.Second)
		synctest.Wait()
		got := take[Traffic](t, s, "traffic")
		if len(got) != 1 || got[0].Full || len(got[0].Edges) != 1 || got[0].Edges[0].Name != "new.test" || got[0].Total != 3 {
			t.Errorf("after a line: %+v", got)
		}
		lines := take[NewLines](t, s, "lines")
		if len(lines) != 1 || len(lines[0].Lines) != 1 || lines[0].Lines[0].Line.Question.Name != "new.test" || lines[0].Lines[0].ID != 3 ||
			!strings.HasPrefix(lines[0].Lines[0].Text, "A new.test") {
			t.Errorf("lines: %+v", lines)
		}
		for range linesAtOnce + 50 {
			one.Log(dns("shop/cart-1", "burst.test", "allowed"))
		}
		one.Stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if lines := take[NewLines](t, s, "lines"); len(lines) != 1 || len(lines[0].Lines) != linesAtOnce || lines[0].Left != 50 {
			t.Errorf("a burst is not cut: %d events", len(lines))
		}
		if a := take[Agents](t, s, "agents"); len(a) != 1 || a[0].Agents[0].State != Unreachable {
			t.Errorf("an agent that is away: %+v", a)
		}
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		var gone []string
		for _, e := range take[Traffic](t, s, "traffic") {
			gone = append(gone, e.Gone...)
		}
		diff.Equal(t, 4, len(gone), "gone after an hour", gone)
	})
}

// TestQuietStream: a stream on which nothing happens has empty lines, and an end of the page ends it.
func TestQuietStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := (&cluster{nodes: []*webtest.Node{nodeOf(t, 1)}, viewer: serve.Everything{}}).open(t, "")
		s := o.stream(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		if n := s.empty; n < 3 || n > 5 {
			t.Errorf("%d empty lines in a minute", n)
		}
		s.mu.Unlock()
		s.close()
		diff.Equal(t, 0, o.streams.Load(), "open streams")
	})
}

// TestStreamsAreBounded: beyond the bound a page is refused, and a place is given back.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := (&cluster{nodes: []*webtest.Node{nodeOf(t, 1)}, viewer: serve.Everything{}}).open(t, "")
		var all []*stream
		for range maxStreams {
			all = append(all, o.stream(t))
		}
		if status, message := o.get(t, "/api/events", nil); status != http.StatusServiceUnavailable || !strings.Contains(message, "32 pages are open already") {
			t.Errorf("%d %s", status, message)
		}
		for _, s := range all {
			s.close()
		}
		s := o.stream(t)
		diff.Equal(t, 1, len(take[Traffic](t, s, "traffic")), "events at a place that was given back")
		s.close()
	})
}
