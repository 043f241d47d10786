package health

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// staleProbe is how old the last answer to the agent's question to itself may
	// be while the agent is ready: after that interception has ended.
	staleProbe = 3 * time.Second
	// deadProbe is the same for a living one: a hung proxy is worth a restart, a
	// busy node is not.
	deadProbe = 30 * time.Second
)

// Health is the agent's state as probes see it. No call waits for the kernel or for the
// API server.
type Health struct {
	now func() time.Time

	mu      sync.Mutex
	synced  bool      // the source has emitted its first state
	blocked error     // why the agent cannot start, nil if it can
	standby bool      // another agent holds the node
	active  time.Time // when this agent took the node, zero before
	inForce bool      // the first snapshot is
	failing string    // why the latest snapshot is not in force
	probed  time.Time // when the proxy last answered itself
	// deviations returns the kernel objects that are not as wanted, each with the reason in words; nil before
	// there is a kernel.
	deviations func() []string
}

// New returns the Health of an agent that starts.
func New(now func() time.Time) *Health { return &Health{now: now} }

// Synced notes that the source has emitted a state.
func (h *Health) Synced() { h.set(func() { h.synced = true }) }

// Blocked notes why the agent cannot start, nil that it can.
func (h *Health) Blocked(why error) { h.set(func() { h.blocked = why }) }

// StandBy notes that another agent has the node and this one waits for it.
func (h *Health) StandBy() { h.set(func() { h.standby = true }) }

// Active notes that this agent has taken the node.
func (h *Health) Active() { h.set(func() { h.standby, h.active = false, h.now() }) }

// RolledOut notes how a roll-out ended: whether any snapshot is in force, and why the
// latest one is not, "" if it is.
func (h *Health) RolledOut(inForce bool, failing string) {
	h.set(func() { h.inForce, h.failing = h.inForce || inForce, failing })
}

// Answered notes that the proxy answered the agent's own query.
func (h *Health) Answered() { h.set(func() { h.probed = h.now() }) }

// Watch has Ready ask for the kernel objects that are not as wanted.
func (h *Health) Watch(deviations func() []string) { h.set(func() { h.deviations = deviations }) }

func (h *Health) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// Live returns why the agent should be restarted, nil if it should not.
func (h *Health) Live() error {
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

// Ready returns why the agent does not do its work, nil if it does: it serves, or could
// at once if the agent that has the node ended.
func (h *Health) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.blocked != nil:
		return h.blocked
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

// deviating names the kernel objects that are not as wanted.
type deviating struct{ objects []string }

func (d *deviating) Error() string {
	return "not as wanted for more than a second: " + strings.Join(d.objects, ", ")
}

// notInForce holds the error of the kernel's programs, which may contain addresses of
// pods.
type notInForce struct{ why string }

func (n *notInForce) Error() string { return "the latest policies are not in force: " + n.why }
