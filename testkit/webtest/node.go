package webtest

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/consoletest"
)

// Node is a node with an agent. Its methods may be called from any goroutine.
type Node struct {
	name string
	now  func() time.Time

	mu        sync.Mutex // of what follows
	input     compile.Input
	snap      *policy.Snapshot
	status    console.Status
	grants    []policy.GrantInfo
	recent    []byte
	followers []*consoletest.Tape
	gone      bool
	hung      chan struct{} // closed when the agent answers again; nil while it does
	asked     map[string]int
	refused   *console.Refusal // of followers
}

// NewNode returns a node with policies and pods.
func NewNode(name string, in compile.Input, now func() time.Time) *Node {
	return &Node{
		name: name, now: now, input: in, snap: compile.New().Compile(in), asked: map[string]int{},
		status: console.Status{Node: name, Version: "v1", InSync: true},
	}
}

// Log writes lines of the audit log.
func (n *Node) Log(lines ...audit.Line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var text []byte
	for i := range lines {
		lines[i].V, lines[i].Node = audit.Version, n.name
		line, err := json.Marshal(&lines[i])
		if err != nil {
			panic(err) // a Line can be written
		}
		text = append(append(text, line...), '\n')
	}
	n.recent = append(n.recent, text...)
	n.play(consoletest.Batch{Lines: string(text)})
}

// Lose makes lines missing for the followers.
func (n *Node) Lose(count uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.play(consoletest.Batch{Lost: count})
}

// SetStatus changes what the agent says of itself.
func (n *Node) SetStatus(change func(*console.Status)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.status)
}

// SetGrants sets what is open.
func (n *Node) SetGrants(grants ...policy.GrantInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.grants = grants
}

// Refuse makes the agent refuse followers, with nil no more.
func (n *Node) Refuse(r *console.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = r
}

// Stop ends the agent: its streams end, and it does not answer. Its log is lost.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone, n.recent = true, nil
	for _, f := range n.followers {
		close(f.Batches)
	}
	n.followers = nil
}

// Start begins the agent again.
func (n *Node) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = false
}

// Hang makes the agent accept questions and answer none; its streams go on. Answer ends that.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = make(chan struct{})
}

// Answer answers what was asked since Hang, and goes on.
func (n *Node) Answer() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.hung)
	n.hung = nil
}

// Asked tells how often a path was asked for.
func (n *Node) Asked(path string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[path]
}

// Streams tells how many follow the log.
func (n *Node) Streams() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.following())
}

// Agent returns the agent as a caller with some rights reaches it.
func (n *Node) Agent(v serve.Viewer) client.Agent {
	viewer := func(*http.Request) (serve.Viewer, error) { return v, nil }
	return &agent{Streaming{n.name, serve.Handler(n.state, viewer, n.now)}, n}
}
