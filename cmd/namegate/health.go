package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/enforcer"
)

const (
	// staleProbe is how old the last answer to the agent's question to itself may
	// be while the agent is ready: after that interception has ended.
	staleProbe = 3 * time.Second
	// deadProbe is the same for a living one: a hung proxy is worth a restart, a
	// busy node is not.
	deadProbe = 30 * time.Second
)

// health is what the probes of the kubelet are answered from. It takes no lock
// that the kernel, or the API server, could hold up.
type health struct {
	now func() time.Time

	mu      sync.Mutex
	synced  bool      // the source has told its first state
	standby bool      // another agent holds the node
	active  time.Time // when this agent took the node, zero before
	inForce bool      // the first snapshot is
	failing string    // why the latest snapshot is not in force
	probed  time.Time // when the proxy last answered itself
	// deviations are what in the kernel is not as wanted; nil before there is a kernel.
	deviations func() []enforcer.Deviation
}

func newHealth(now func() time.Time) *health { return &health{now: now} }

// set changes what is known.
func (h *health) set(change func(*health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

// live tells why the agent should be started anew, nil if it should not.
func (h *health) live() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inForce {
		return nil
	}
	if since := h.now().Sub(h.probed); since > deadProbe {
		return fmt.Errorf("the proxy has not answered the agent itself for %v", since.Round(time.Second))
	}
	return nil
}

// ready tells why the agent does not do its work yet, nil if it does: it serves,
// or could at once if the agent that holds the node went.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.synced:
		return errors.New("policies and pods are not read yet")
	case h.standby:
		return nil
	case h.active.IsZero():
		return errors.New("the agent is starting")
	case h.failing != "":
		return &notInForce{h.failing}
	case !h.inForce:
		return errors.New("policies are not in force yet")
	case h.now().Sub(h.probed) > staleProbe:
		return errors.New("the proxy does not answer the agent itself")
	case h.deviations != nil:
		if all := h.deviations(); len(all) > 0 {
			return &deviating{all}
		}
	}
	return nil
}

// deviating says what in the kernel is not as wanted.
type deviating struct{ all []enforcer.Deviation }

func (d *deviating) Error() string {
	var names []string
	for _, dev := range d.all {
		names = append(names, dev.Object)
	}
	return "not as wanted for more than a second: " + strings.Join(names, ", ")
}

// enforcing tells whether all policies that are known are in force.
func (h *health) enforcing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inForce && h.failing == ""
}

// notInForce says why the latest policies are not: in the words of the kernel's
// programs, which may hold addresses of pods.
type notInForce struct{ why string }

func (n *notInForce) Error() string { return "the latest policies are not in force: " + n.why }

// whole is all that is known of an error, for root.
func whole(err error) string { return err.Error() }

// outline is what everybody may know who reaches the port.
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

// verdict is what a probe is answered.
type verdict struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// handler answers a probe with 200, or 503 and the reason in the words of tell.
func (h *health) handler(check func() error, tell func(error) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := verdict{OK: true}
		if err := check(); err != nil {
			v = verdict{Reason: tell(err)}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(v)
	}
}

// serve answers probes on a socket of the agent's own.
func (h *health) serve(path string) (*socketServer, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", h.handler(h.live, whole))
	mux.HandleFunc("GET /ready", h.handler(h.ready, whole))
	return serveSocket(path, mux)
}

func healthCommand() *cobra.Command {
	var socket string
	var live, ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Answer a probe: exit code 0 if the agent of this socket is well",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for path, asked := range map[string]bool{"/live": live, "/ready": ready} {
				if !asked {
					continue
				}
				if err := probeHealth(cmd.Context(), socket, path); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&socket, "socket", "", "the agent's --health-socket")
	fl.BoolVar(&live, "live", false, "fail if the agent should be started anew")
	fl.BoolVar(&ready, "ready", false, "fail if the agent does not do its work")
	cmd.MarkFlagsOneRequired("live", "ready")
	_ = cmd.MarkFlagRequired("socket")
	return cmd
}

func probeHealth(ctx context.Context, socket, path string) error {
	body, err := get(ctx, socket, path)
	if err != nil {
		return err
	}
	var v verdict
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if !v.OK {
		return errors.New(v.Reason)
	}
	return nil
}
