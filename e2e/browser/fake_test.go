package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// object is JSON of the API.
type object = map[string]any

// fake answers the page's questions with the data of a test: whatever a real server may answer,
// also what no agent would.
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	session  object
	agents   []object
	edges    []object
	lines    []object // oldest first
	answers  map[string]any
	failures map[string]string // path to message
	asked    []string
	pages    map[chan event]struct{}
	slow     chan struct{} // /api/explain and suggest wait for it, unless nil
	away     atomic.Bool   // the server ends each connection
}

type event struct {
	name string
	data any
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{
		session:  object{"context": "kind-lab", "namespace": "", "version": "v9", "started": "2026-05-01T12:00:00Z"},
		answers:  map[string]any{"grants": object{"grants": []object{}}, "policies": object{"policies": []object{}, "since": "2026-05-01T12:00:00Z"}, "status": object{"nodes": []object{}}},
		failures: map[string]string{},
		pages:    map[chan event]struct{}{},
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(os.DirFS("../../console/web/page")))
	mux.HandleFunc("GET /api/events", f.events)
	mux.HandleFunc("GET /api/{path}", f.answer)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	own := make(chan event, 1000)
	f.pages[own] = struct{}{}
	first := []event{{"agents", object{"agents": f.agents}}, {"traffic", object{"at": "2026-05-01T12:00:00Z", "full": true, "edges": f.edges, "total": len(f.edges)}}}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.pages, own)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(e event) {
		_ = json.NewEncoder(w).Encode(object{"event": e.name, "data": e.data})
		w.(http.Flusher).Flush()
	}
	for _, e := range first {
		send(e)
	}
	for {
		select {
		case e := <-own:
			send(e)
		case <-r.Context().Done():
			return
		}
	}
}

// push sends an event to all pages.
func (f *fake) push(name string, data any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for page := range f.pages {
		page <- event{name, data}
	}
}

// set changes what the next question finds.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) answer(w http.ResponseWriter, r *http.Request) {
	path := r.PathValue("path")
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.RequestURI())
	slow := f.slow
	f.mu.Unlock()
	if slow != nil && (path == "explain" || path == "suggest") {
		<-slow
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if message := f.failures[path]; message != "" {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(object{"error": message})
		return
	}
	var value any
	switch path {
	case "session":
		value = f.session
	case "lines":
		value = f.filtered(r)
	default:
		value = f.answers[path]
	}
	if value == nil {
		w.WriteHeader(http.StatusNotFound)
		value = object{"error": "no such path"}
	}
	_ = json.NewEncoder(w).Encode(value)
}

// filtered are the lines that a question asks for, newest first.
func (f *fake) filtered(r *http.Request) object {
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	before, _ := strconv.Atoi(r.FormValue("before"))
	found := []object{}
	more := false
	for _, l := range slices.Backward(f.lines) {
		text, _ := json.Marshal(l["line"])
		line := l["line"].(object)
		pod, _ := line["pod"].(object)
		switch {
		case before > 0 && l["id"].(int) >= before,
			r.FormValue("verdict") != "" && line["verdict"] != r.FormValue("verdict"),
			r.FormValue("namespace") != "" && pod["namespace"] != r.FormValue("namespace"),
			!strings.Contains(string(text), r.FormValue("name")),
			!strings.Contains(string(text), r.FormValue("policy")),
			!strings.Contains(string(text), strings.TrimPrefix(r.FormValue("workload"), "Pod/")):
		case limit > 0 && len(found) == limit:
			more = true
		default:
			found = append(found, l)
		}
	}
	return object{"lines": found, "more": more}
}

// wasAsked is whether a question began so.
func (f *fake) wasAsked(prefix string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, prefix) })
}
