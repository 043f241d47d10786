package safeguard

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/agent/statefile"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/peers"
)

// Options are the parameters of a Guard. All fields are required.
type Options struct {
	File string // of the state
	Boot string // as BootID returns it
	// Now reads the kernel's clock, as Monotonic does. Away is for how long the API server has
	// been unavailable, 0 while it is not.
	Now, Away func() time.Duration
	Log       *slog.Logger
}

// Guard keeps the State of this node. It may be used at any time.
type Guard struct {
	o Options

	mu       sync.Mutex
	read     bool // the file was read
	unsaved  bool // the last write failed
	state    State
	policies []Policy
}

// New returns a Guard. It reads the file with the first Amend: another agent may write it before.
func New(o Options) *Guard { return &Guard{o: o} }

// Amend sets in.TurnedToAudit and in.Unconfirmed. The times of generations that in.Node has for the first time begin.
func (g *Guard) Amend(in *compile.Input) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.read {
		g.read, g.state = true, g.load()
	}
	g.policies = Policies(in.NodePolicies, in.Node)
	g.step()
	in.TurnedToAudit, in.Unconfirmed = g.state.Turned(), g.state.unconfirmed()
}

// Due tells whether an Amend would set other policies than the last one.
func (g *Guard) Due() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.read {
		return false
	}
	before := g.state.names()
	g.step()
	return !slices.Equal(before, g.state.names())
}

// Turned returns the policies that are only audited, by name, as State.Turned does.
func (g *Guard) Turned() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Turned()
}

// step brings the state and the file up to date. An agent that cannot write the file goes on, and
// tries again with each step.
func (g *Guard) step() {
	next := g.state.Step(Moment{Boot: g.o.Boot, At: g.o.Now(), Away: g.o.Away()}, g.policies)
	if next.Equal(g.state) && !g.unsaved {
		return
	}
	g.state = next
	err := statefile.Write(g.o.File, g.state)
	if err != nil && !g.unsaved {
		g.o.Log.Error("cannot save since when policies for nodes wait for confirmation; after a restart of the agent their time begins anew", "error", err)
	}
	g.unsaved = err != nil
}

// load reads the file. A file that cannot be read counts as none.
func (g *Guard) load() State {
	var s State
	err := statefile.Read(g.o.File, &s)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.o.Log.Error("cannot read since when policies for nodes wait for confirmation; their time begins anew", "file", g.o.File, "error", err)
	}
	if err != nil {
		return State{}
	}
	return s
}

// Policies returns the enforcing policies with a safeguard that select the node, nil for no node.
func Policies(all []*v1alpha1.NodeNetworkPolicy, node *policy.Node) (out []Policy) {
	for _, p := range all {
		within, _ := nnp.ConfirmWithin(&p.Spec)
		if node == nil || within == 0 || p.Spec.NodeSelector == nil || p.Spec.Enforcement == v1alpha1.EnforcementAudit || p.Generation == 0 {
			continue
		}
		if s, err := peers.NewSelector(p.Spec.NodeSelector); err == nil && s.Matches(node.Labels) {
			out = append(out, Policy{Name: p.Name, UID: string(p.UID), Generation: p.Generation, Confirmed: nnp.Confirmed(p), Within: within})
		}
	}
	return out
}

// Monotonic reads the kernel's monotonic clock.
func Monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // no kernel lacks this clock
	}
	return time.Duration(t.Nano())
}

// BootID returns the kernel's random name of the time since the machine started, "" if it cannot
// be read.
func BootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(text)
}
