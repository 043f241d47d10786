package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/fatal"
)

// apiServer speaks as much of the API as a source needs: lists, watches from a
// version on, streamed lists, and the selectors that a source uses. It can be away.
type apiServer struct {
	t    *testing.T
	http *httptest.Server

	mu       sync.Mutex
	version  int
	oldest   int // watches from before are answered with 410
	objects  map[string]map[string]any
	history  []change
	more     chan struct{} // closed at the next change
	away     bool
	noStream bool                       // as servers of old: no streamed lists
	forbid   string                     // a resource that is forbidden
	unserved string                     // a resource that is not served
	lacks    string                     // a version of an API that is not served
	silent   string                     // a resource that is not answered for
	speaks   chan struct{}              // closed when it is
	asked    map[string]int             // requests by "list pods", "watch pods", and "stream pods" for streamed lists
	watching map[string]int             // watches that are open, by "pods"
	spaces   map[string]map[string]bool // the namespaces of requests, by "pods"
}

type change struct {
	version int
	kind    string // ADDED, MODIFIED or DELETED
	path    string
	object  map[string]any
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, version: 1, objects: map[string]map[string]any{}, more: make(chan struct{}), asked: map[string]int{}, watching: map[string]int{}, spaces: map[string]map[string]bool{}}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.setAway(true)
		s.http.Close()
	})
	return s
}

func (s *apiServer) clients() (kubernetes.Interface, dynamic.Interface) {
	config := &rest.Config{Host: s.http.URL, QPS: 1000, Burst: 1000, Dial: s.dial}
	k, err := kubernetes.NewForConfig(config)
	fatal.If(s.t, err)
	d, err := dynamic.NewForConfig(config)
	fatal.If(s.t, err)
	return k, d
}

// dial refuses connections while the server is down, like a closed port.
func (s *apiServer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// setAway makes the server go away, with every connection, or come back.
func (s *apiServer) setAway(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	if away {
		s.http.CloseClientConnections()
	}
}

// setSilent makes the server leave requests for a resource unanswered, until speak.
func (s *apiServer) setSilent(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent, s.speaks = resource, make(chan struct{})
}

// speak makes the server answer the waiting requests, and all later ones.
func (s *apiServer) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = ""
	close(s.speaks)
}

// forget makes the server forget its history, as one does after a while.
func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
}

func (s *apiServer) requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

// namespaces returns the namespaces of the requests for something, "*" for all.
func (s *apiServer) namespaces(what string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(s.spaces[what])), " ")
}

// pathOf returns "resource/namespace/name" of an object.
func pathOf(resource string, m metav1.Object) string {
	return resource + "/" + m.GetNamespace() + "/" + m.GetName()
}

// put creates or changes an object.
func (s *apiServer) put(resource string, object runtime.Object) {
	text, err := json.Marshal(object)
	fatal.If(s.t, err)
	var o map[string]any
	fatal.If(s.t, json.Unmarshal(text, &o))
	path := pathOf(resource, object.(metav1.Object))
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "ADDED"
	if s.objects[path] != nil {
		kind = "MODIFIED"
	}
	s.record(kind, path, o)
	s.objects[path] = o
}

// remove deletes an object, if it is there.
func (s *apiServer) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[path]; o != nil {
		delete(s.objects, path)
		s.record("DELETED", path, maps.Clone(o))
	}
}

func (s *apiServer) record(kind, path string, o map[string]any) {
	s.version++
	meta := maps.Clone(o["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	o["metadata"] = meta
	s.history = append(s.history, change{s.version, kind, path, o})
	close(s.more)
	s.more = make(chan struct{})
}

// query is what of a request counts.
type query struct {
	version                      string // of the API
	resource, namespace, service string
	node, notNode, object        string
	from, limit                  int
	page                         int // of a list in pages, from 0
	stream                       bool
	any                          bool // any version, by resourceVersion 0
}

func readQuery(r *http.Request) query {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	q := query{resource: parts[len(parts)-1], version: parts[1]}
	if parts[0] == "apis" {
		q.version += "/" + parts[2]
	}
	if len(parts) > 2 && parts[len(parts)-3] == "namespaces" {
		q.namespace = parts[len(parts)-2]
	}
	fields := r.FormValue("fieldSelector")
	if not, isNot := strings.CutPrefix(fields, "spec.nodeName!="); isNot {
		q.notNode = not
	} else if name, isName := strings.CutPrefix(fields, "metadata.name="); isName {
		q.object = name
	} else {
		q.node, _ = strings.CutPrefix(fields, "spec.nodeName=")
	}
	q.limit, _ = strconv.Atoi(r.FormValue("limit"))
	q.page, _ = strconv.Atoi(r.FormValue("continue"))
	q.service, _ = strings.CutPrefix(r.FormValue("labelSelector"), "kubernetes.io/service-name=")
	q.from, _ = strconv.Atoi(r.FormValue("resourceVersion"))
	q.any = r.FormValue("resourceVersion") == "0"
	q.stream = r.FormValue("sendInitialEvents") == "true"
	return q
}

// name is the tests' name of a requested resource: pods of other nodes are not "pods".
func (q *query) name() string {
	if q.notNode != "" {
		return "other pods"
	}
	return q.resource
}

func (q *query) selects(path string, o map[string]any) bool {
	parts := strings.Split(path, "/")
	spec, _ := o["spec"].(map[string]any)
	labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
	return parts[0] == q.resource && (q.namespace == "" || parts[1] == q.namespace) && (q.object == "" || parts[2] == q.object) &&
		(q.node == "" || spec["nodeName"] == q.node) && (q.notNode == "" || spec["nodeName"] != q.notNode) && (q.service == "" || labels["kubernetes.io/service-name"] == q.service)
}

var kinds = map[string][2]string{"pods": {"v1", "Pod"}, "namespaces": {"v1", "Namespace"}, "services": {"v1", "Service"}, "nodes": {"v1", "Node"}, "networkpolicies": {"networking.k8s.io/v1", "NetworkPolicy"},
	"fqdnnetworkpolicies": {"namegate.io/v1alpha1", "FQDNNetworkPolicy"}, "clusterfqdnnetworkpolicies": {"namegate.io/v1alpha1", "ClusterFQDNNetworkPolicy"}, "nodenetworkpolicies": {"namegate.io/v1alpha1", "NodeNetworkPolicy"}, "endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"},
	"clusternetworkpolicies": {cnp.Resource().GroupVersion().String(), "ClusterNetworkPolicy"}}

// typed returns the object with its kind in the version that is asked for, as servers send it.
func (q *query) typed(o map[string]any) map[string]any {
	o = maps.Clone(o)
	o["apiVersion"], o["kind"] = q.version, kinds[q.resource][1]
	return o
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r)
	verb := "list"
	if r.FormValue("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	s.asked[verb+" "+q.name()]++
	if q.stream {
		s.asked["stream "+q.name()]++
	}
	if s.spaces[q.name()] == nil {
		s.spaces[q.name()] = map[string]bool{}
	}
	s.spaces[q.name()][cmp.Or(q.namespace, "*")] = true
	away, forbidden, refused := s.away, s.forbid == q.name(), q.stream && s.noStream
	unserved := s.unserved == q.name() || s.lacks == q.version
	silent, speaks := s.silent == q.name(), s.speaks
	s.mu.Unlock()
	if silent {
		select {
		case <-speaks:
		case <-r.Context().Done():
			return
		}
	}
	group, isDiscovery := strings.CutPrefix(r.URL.Path, "/apis/")
	switch {
	case away:
		panic(http.ErrAbortHandler)
	case isDiscovery && strings.Count(group, "/") == 1 && !unserved:
		s.discover(w, group)
	case unserved:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case forbidden:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case refused:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case verb == "watch":
		s.watch(w, r, q)
	default:
		s.list(w, q)
	}
}

// discover lists the kinds of a group and version that are served.
func (s *apiServer) discover(w http.ResponseWriter, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: group}
	name, _, _ := strings.Cut(group, "/")
	for resource, kind := range kinds {
		if strings.HasPrefix(kind[0], name+"/") && resource != s.unserved {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind[1]})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func status(code int, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: string(reason)}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason))
}

// present returns the objects that the query selects, and the version.
func (s *apiServer) present(q query) ([]any, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if q.selects(path, s.objects[path]) {
			items = append(items, q.typed(s.objects[path]))
		}
	}
	return items, s.version
}

func (s *apiServer) list(w http.ResponseWriter, q query) {
	items, version := s.present(q)
	meta := map[string]any{"resourceVersion": strconv.Itoa(version)}
	if q.any {
		q.limit = 0 // as of the cache of an API server
	}
	if first := min(q.page*q.limit, len(items)); q.limit > 0 {
		items = items[first:]
		if len(items) > q.limit {
			items, meta["continue"] = items[:q.limit], strconv.Itoa(q.page+1)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": q.version, "kind": kinds[q.resource][1] + "List", "items": items, "metadata": meta})
}

// count counts the open watches of something.
func (s *apiServer) count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching[what] += n
}

// open returns how many watches of something are open.
func (s *apiServer) open(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching[what]
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, q query) {
	s.count(q.name(), 1)
	defer s.count(q.name(), -1)
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	version := q.from
	if q.stream {
		var items []any
		items, version = s.present(q)
		for _, o := range items {
			send("ADDED", o)
		}
		send("BOOKMARK", q.typed(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(version),
			"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}}))
	}
	for {
		s.mu.Lock()
		gone, more, away := version < s.oldest, s.more, s.away
		news := s.history
		s.mu.Unlock()
		if away {
			panic(http.ErrAbortHandler)
		}
		if gone {
			send("ERROR", status(http.StatusGone, metav1.StatusReasonExpired))
			return
		}
		for _, c := range news {
			if c.version > version && q.selects(c.path, c.object) {
				send(c.kind, q.typed(c.object))
			}
			version = max(version, c.version)
		}
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
