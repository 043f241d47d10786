package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// Where an agent answers.
const (
	StatusPath   = "/v1/status"
	PodsPath     = "/v1/pods"
	GrantsPath   = "/v1/grants"
	PoliciesPath = "/v1/policies"
	ExplainPath  = "/v1/explain"
	AuditPath    = "/v1/audit"
)

// Handler answers every request of people to an agent. viewer returns the caller; its
// error is a *Refusal, or counts as one with status 503.
func Handler(source Source, viewer func(*http.Request) (Viewer, error), now func() time.Time) http.Handler {
	c := &console{source: source, viewer: viewer, now: now}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*request) error{
		StatusPath: c.status, PodsPath: c.pods, GrantsPath: c.grants, PoliciesPath: c.policies, ExplainPath: c.explain, AuditPath: c.audit,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, answer) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, Refuse(http.StatusNotImplemented, "this agent does not know %s %s: it is of another version than the command", r.Method, r.URL.Path))
	})
	return mux
}

// console answers.
type console struct {
	source Source
	viewer func(*http.Request) (Viewer, error)
	now    func() time.Time

	followers followers
}

// right is a namespace, or a kind of cluster policies, that a caller may see.
type right struct {
	namespace         string
	cluster, standard bool
}

// request is one question.
type request struct {
	*http.Request
	w      http.ResponseWriter
	viewer Viewer
	seen   map[right]bool // what sees and seesCluster returned
}

func (c *console) serve(w http.ResponseWriter, r *http.Request, answer func(*request) error) {
	v, err := c.viewer(r)
	if err == nil {
		err = answer(&request{r, w, v, map[right]bool{}})
	}
	if err != nil {
		refuse(w, err)
	}
}

// refuse writes an error as a refusal.
func refuse(w http.ResponseWriter, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		r = Refuse(http.StatusServiceUnavailable, "%v", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r)
}

// write answers with a value. An error of sending has no receiver.
func (r *request) write(v any) error {
	r.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(r.w).Encode(v)
	return nil
}

// writeRows answers with a list below a key, row by row: a full node has 100,000 grants,
// and the agent has little memory for a second copy.
func (r *request) writeRows(key string, rows iter.Seq[any]) error {
	r.w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(r.w)
	fmt.Fprintf(out, "{%q:[", key)
	first := true
	for row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
		if !first {
			_ = out.WriteByte(',')
		}
		first = false
		if _, err := out.Write(text); err != nil {
			return nil // the caller is gone
		}
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
	return nil
}

// may returns the refusal of a caller who may not see a namespace, "" for all.
func (r *request) may(namespace string) error {
	sees, err := r.viewer.Sees(r.Context(), namespace)
	switch {
	case err != nil:
		return err
	case sees:
		return nil
	case namespace == "":
		return Refuse(http.StatusForbidden, "you may not see all namespaces: that takes the right to get fqdnnetworkpolicies.namegate.io in the whole cluster; name one that you may see with -n NAMESPACE")
	}
	return Refuse(http.StatusForbidden, "you may not see the namespace %s: that takes the right to get fqdnnetworkpolicies.namegate.io in it; ask your administrator for the ClusterRole namegate-viewer there", namespace)
}

// mayCluster returns the refusal of a caller who may not read ClusterFQDNNetworkPolicies.
func (r *request) mayCluster() error {
	sees, err := r.viewer.SeesCluster(r.Context(), false)
	if err != nil || sees {
		return err
	}
	return Refuse(http.StatusForbidden, "you may not see cluster policies: that takes the right to get clusterfqdnnetworkpolicies.namegate.io; ask the administrator of the cluster's policies, or suggest from a file of the log")
}

// sees tells whether the caller may see the rows of a namespace, false in doubt. Rights
// are asked once for each namespace: the API server may need some time.
func (r *request) sees(namespace string) bool {
	return r.once(right{namespace: namespace}, func() (bool, error) { return r.viewer.Sees(r.Context(), namespace) })
}

// seesCluster is sees for the cluster policies of a kind, as of Viewer.
func (r *request) seesCluster(standard bool) bool {
	return r.once(right{cluster: true, standard: standard}, func() (bool, error) { return r.viewer.SeesCluster(r.Context(), standard) })
}

func (r *request) once(what right, ask func() (bool, error)) bool {
	sees, known := r.seen[what]
	if !known {
		may, err := ask()
		sees = err == nil && may
		r.seen[what] = sees
	}
	return sees
}

// status answers with the state of the whole node.
func (c *console) status(r *request) error {
	if err := r.may(""); err != nil {
		return err
	}
	s := c.source.Status()
	if s.Problems = r.ofSeen(s.Problems); !r.seesCluster(false) {
		s.Failsafes = nil
	}
	return r.write(s)
}
