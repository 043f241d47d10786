package webtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

// errGone is what the caller of a stopped agent gets.
var errGone = &console.Unreachable{Err: errors.New("no agent answers at 192.0.2.2:9954: is it running?")}

// Streaming is an agent whose answers are read as they are written.
type Streaming struct {
	Name    string
	Handler http.Handler
}

// Node returns the node's name.
func (a *Streaming) Node() string { return a.Name }

// Ask asks the handler.
func (a *Streaming) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	body, in := io.Pipe()
	w := &writer{head: http.Header{}, began: make(chan struct{}), body: in}
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		a.Handler.ServeHTTP(w, req)
		w.begin(http.StatusOK)
		stop()
		in.Close()
	}()
	<-w.began
	return client.Received(&http.Response{StatusCode: w.status, Status: http.StatusText(w.status), Header: w.head, Body: body, Request: req})
}

// agent is that of a Node, which may be slow or away.
type agent struct {
	Streaming
	node *Node
}

// Ask sends one question.
func (a *agent) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	n := a.node
	n.mu.Lock()
	n.asked[path]++
	gone, hung, refused := n.gone, n.hung, n.refused
	n.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return nil, &console.Unreachable{Err: ctx.Err()}
		}
	}
	switch {
	case gone:
		return nil, errGone
	case refused != nil && query.Has("follow"):
		return nil, refused
	}
	return a.Streaming.Ask(ctx, path, query)
}

// writer is the http.ResponseWriter of one answer.
type writer struct {
	head   http.Header
	once   sync.Once
	began  chan struct{}
	status int
	body   *io.PipeWriter
}

func (w *writer) begin(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.began)
	})
}

// Header returns the headers.
func (w *writer) Header() http.Header { return w.head }

// WriteHeader begins the answer.
func (w *writer) WriteHeader(status int) { w.begin(status) }

// Write waits until the reader has taken all.
func (w *writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.body.Write(p)
}

// Flush begins the answer.
func (w *writer) Flush() { w.begin(http.StatusOK) }
