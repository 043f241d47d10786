package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/namegate/namegate/agent/socket"
	"github.com/namegate/namegate/console/client"
)

// Serve answers probes at a socket of the agent's own, with all details: root asks.
func (h *Health) Serve(path string) (*socket.Server, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /live", handler(h.Live, error.Error, http.StatusOK))
	mux.Handle("GET /ready", handler(h.Ready, error.Error, http.StatusOK))
	return socket.Serve(path, mux)
}

// Public returns the handlers of both probes for a port that everybody may reach: the
// kernel's errors are left out.
func (h *Health) Public() (live, ready http.Handler) {
	return handler(h.Live, outline, http.StatusServiceUnavailable), handler(h.Ready, outline, http.StatusServiceUnavailable)
}

// Probe asks the agent at a socket that Serve made; path is /live or /ready. The error is
// the reason of the agent's refusal.
func Probe(ctx context.Context, at, path string) error {
	resp, err := client.Local{Socket: at}.Ask(ctx, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var v verdict
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if !v.OK {
		return errors.New(v.Reason)
	}
	return nil
}

// verdict is the answer to a probe.
type verdict struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// handler answers a probe with 200, or with the status failed and the reason as words renders it.
func handler(check func() error, words func(error) string, failed int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v := verdict{OK: true}
		if err := check(); err != nil {
			v = verdict{Reason: words(err)}
			w.WriteHeader(failed)
		}
		_ = json.NewEncoder(w).Encode(v)
	})
}

// outline removes the details from a reason, because everyone can read it.
func outline(err error) string {
	var n *notInForce
	if errors.As(err, &n) {
		return "the latest policies are not in force; `namegate status` on the node says why"
	}
	var d *deviating
	if errors.As(err, &d) {
		return "something of Namegate in the kernel is not as wanted; `namegate status` on the node says what"
	}
	return err.Error()
}
