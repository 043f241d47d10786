package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// apiServer is as much of an API server as an agent needs to read a cluster that does
// not change: lists, streamed lists, and watches that say nothing. What an agent writes
// is taken and forgotten.
type apiServer struct {
	http http.Server
	// objects are of each resource, as JSON objects; kinds are "group/version Kind".
	objects map[string][]json.RawMessage
	kinds   map[string]string
	// node is the node that an agent is on: own are the names of its pods.
	node string
	own  map[string]bool
}

// serve answers on a listener until close.
func (s *apiServer) serve(l net.Listener) {
	s.http.Handler = s
	go func() { _ = s.http.Serve(l) }()
}

func (s *apiServer) close() error { return s.http.Close() }

// ServeHTTP answers for /api/v1/… and /apis/GROUP/VERSION/…, in JSON.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		_, _ = io.Copy(w, r.Body)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[len(parts)-1]
	kind, known := s.kinds[resource]
	q := r.URL.Query()
	switch {
	case q.Get("watch") != "":
		s.watch(w, r, resource, kind)
	case known:
		version, kind, _ := strings.Cut(kind, " ")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": version, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"},
			"items": s.chosen(resource, q.Get("fieldSelector")),
		})
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// chosen returns the objects of a resource that a field selector of an agent means.
func (s *apiServer) chosen(resource, fields string) []json.RawMessage {
	all := s.objects[resource]
	if resource != "pods" || !strings.HasPrefix(fields, "spec.nodeName") {
		return append([]json.RawMessage{}, all...)
	}
	others, out := strings.Contains(fields, "!="), []json.RawMessage{}
	for _, o := range all {
		var p struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(o, &p); err == nil && s.own[p.Metadata.Name] != others {
			out = append(out, o)
		}
	}
	return out
}

// watch streams what there is where that is asked for, and then nothing until the
// client goes.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, kind string) {
	version, kind, _ := strings.Cut(kind, " ")
	out := json.NewEncoder(w)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range s.chosen(resource, r.URL.Query().Get("fieldSelector")) {
			if err := out.Encode(map[string]any{"type": "ADDED", "object": o}); err != nil {
				return
			}
		}
		_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{
			"resourceVersion": "1", "annotations": map[string]string{"k8s.io/initial-events-end": "true"}}}})
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	select {
	case <-r.Context().Done():
	case <-time.After(time.Hour):
	}
}
