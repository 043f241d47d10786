package scenarios

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// apiServer has as much of the Kubernetes API as an agent that reads: lists of objects, and watches that end
// with the next change of any object. It refuses writes.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string][]map[string]any // by the resource
	changed chan struct{}               // closed by the next change
	listed  map[string]int
}

// resources are the kinds by their resources.
var resources = map[string]string{
	"pods": "v1/Pod", "namespaces": "v1/Namespace", "services": "v1/Service", "nodes": "v1/Node",
	"networkpolicies": "networking.k8s.io/v1/NetworkPolicy", "endpointslices": "discovery.k8s.io/v1/EndpointSlice",
	"daemonsets": "apps/v1/DaemonSet", "leases": "coordination.k8s.io/v1/Lease",
	"fqdnnetworkpolicies": "namegate.io/v1alpha1/FQDNNetworkPolicy", "clusterfqdnnetworkpolicies": "namegate.io/v1alpha1/ClusterFQDNNetworkPolicy",
	"nodenetworkpolicies": "namegate.io/v1alpha1/NodeNetworkPolicy",
}

// serveAPI serves the API at an address of a host over HTTP.
func serveAPI(t *testing.T, host *lab.Host, at string) *apiServer {
	t.Helper()
	s := &apiServer{version: 1, objects: map[string][]map[string]any{}, changed: make(chan struct{}), listed: map[string]int{}}
	l, err := host.Listen(at)
	fatal.If(t, err)
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// set replaces the objects of a resource by YAML documents.
func (s *apiServer) set(t *testing.T, resource string, documents ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.objects[resource] = nil
	for i, text := range documents {
		object := map[string]any{}
		fatal.If(t, yaml.Unmarshal([]byte(text), &object))
		meta := object["metadata"].(map[string]any)
		meta["uid"], meta["generation"], meta["resourceVersion"] = fmt.Sprintf("%s-%d", resource, i), s.version, fmt.Sprint(s.version)
		s.objects[resource] = append(s.objects[resource], object)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// lists returns how often the objects of a resource were listed.
func (s *apiServer) lists(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed[resource]
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	kind, known := resources[resource]
	s.mu.Lock()
	version, changed, items := fmt.Sprint(s.version), s.changed, s.objects[resource]
	s.mu.Unlock()
	group := ""
	if i := strings.LastIndexByte(kind, '/'); known {
		group, kind = kind[:i], kind[i+1:]
	}
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
		refuse(w, http.StatusForbidden, "Forbidden")
	case !known:
		refuse(w, http.StatusNotFound, "NotFound")
	case q.Get("watch") == "":
		if items == nil {
			items = []map[string]any{}
		}
		s.mu.Lock()
		s.listed[resource]++
		s.mu.Unlock()
		reply(w, http.StatusOK, map[string]any{"kind": kind + "List", "apiVersion": group, "metadata": map[string]any{"resourceVersion": version}, "items": items})
	case q.Get("sendInitialEvents") != "":
		refuse(w, http.StatusUnprocessableEntity, "Invalid")
	case q.Get("resourceVersion") != version:
		refuse(w, http.StatusGone, "Expired")
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
	}
}

func refuse(w http.ResponseWriter, code int, reason string) {
	reply(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
}

func reply(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// kubeconfigFor is a kubeconfig of an API server without TLS.
func kubeconfigFor(at string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://%s\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n", at)
}

// hostPort joins an address and a port.
func hostPort(addr string, port int) string { return net.JoinHostPort(addr, fmt.Sprint(port)) }
