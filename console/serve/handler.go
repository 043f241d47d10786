package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/share"
)

// Handler answers every request of people to an agent. viewer returns the caller; its
// error is a *console.Refusal, or counts as one with status 503.
func Handler(state func() *State, viewer func(*http.Request) (Viewer, error), now func() time.Time) http.Handler {
	h := &handler{state: state, viewer: viewer, now: now}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*request) error{
		console.StatusPath: (*request).status, console.PodsPath: (*request).pods, console.GrantsPath: (*request).grants,
		console.PoliciesPath: (*request).policies, console.ExplainPath: (*request).explain, console.AuditPath: (*request).audit,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, answer) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, console.Refuse(http.StatusNotImplemented, "this agent does not know %s %s: it is of another version than the command", r.Method, r.URL.Path))
	})
	return mux
}

// handler answers.
type handler struct {
	state  func() *State
	viewer func(*http.Request) (Viewer, error)
	now    func() time.Time

	followers share.Slots[string] // by the name of the user
}

// request is one question, which one state answers.
type request struct {
	*http.Request
	*State
	handler *handler
	w       http.ResponseWriter
	viewer  Viewer
	seen    map[Right]bool // what sees and seesCluster returned
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, answer func(*request) error) {
	v, err := h.viewer(r)
	if err == nil {
		err = answer(&request{r, h.state(), h, w, v, map[Right]bool{}})
	}
	if err != nil {
		refuse(w, err)
	}
}

// refuse writes an error as a refusal.
func refuse(w http.ResponseWriter, err error) {
	var r *console.Refusal
	if !errors.As(err, &r) {
		r = console.Refuse(http.StatusServiceUnavailable, "%v", err)
	}
	r.Answer(w)
}

// answer answers with a value. An error of sending has no receiver.
func (r *request) answer(v any) error {
	r.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(r.w).Encode(v)
	return nil
}

// answerRows answers with a list below a key, row by row: a full node has 100,000 grants,
// and the agent has little memory for a second copy.
func (r *request) answerRows(key string, rows iter.Seq[any]) error {
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

// status answers with the state of the whole node.
func (r *request) status() error {
	if err := r.may(""); err != nil {
		return err
	}
	s := r.Status()
	if s.Problems = r.ofSeen(s.Problems); !r.seesNodes() {
		s.Failsafes = nil
	}
	return r.answer(s)
}
