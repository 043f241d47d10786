package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

const (
	// findEvery is how often agents are found anew: of a cluster that is some requests to the API
	// server.
	findEvery = 15 * time.Second
	// maxAgents bounds the agents whose lines are followed.
	maxAgents = 512
	// leastPause and mostPause bound the pauses before an agent is asked again: each is twice the
	// one before, until lines arrive.
	leastPause = time.Second
	mostPause  = 30 * time.Second
	// statusEvery is how often an agent is asked for its problems, statusRefused where it refuses.
	statusEvery   = 10 * time.Second
	statusRefused = time.Minute
)

// feed follows the audit log of all agents. Each agent has goroutines of its own: one that is slow
// or away delays no other.
type feed struct {
	o     *Options
	store *store

	mu        sync.Mutex // of what follows
	following map[string]*following
	trouble   string // why agents are not found, or not all followed
}

func newFeed(o *Options, s *store) *feed {
	return &feed{o: o, store: s, following: map[string]*following{}}
}

// run finds agents and follows them until ctx ends.
func (f *feed) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		if f.find(ctx, &all); !f.o.pause(ctx, findEvery) {
			return
		}
	}
}

// find begins to follow agents that have come, and leaves those that are listed no more.
func (f *feed) find(ctx context.Context, all *sync.WaitGroup) {
	agents, err := f.o.Agents(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble = ""; err != nil {
		f.trouble = "agents that come or go are not noticed at the moment: " + console.OneLine(err.Error())
		return
	}
	slices.SortFunc(agents, func(a, b client.Agent) int { return cmp.Compare(a.Node(), b.Node()) })
	if more := len(agents) - maxAgents; more > 0 {
		f.trouble = fmt.Sprintf("%d agents are left out: the first %d are followed; ask for one namespace with -n, or for one node with --node", more, maxAgents)
		agents = agents[:maxAgents]
	}
	listed := map[string]bool{}
	for _, a := range agents {
		listed[a.Node()] = true
		if known := f.following[a.Node()]; known != nil {
			known.locked(func() { known.agent = a }) // it is asked from the next time
			continue
		}
		one, stop := context.WithCancel(ctx)
		g := &following{feed: f, node: a.Node(), agent: a, stop: stop, state: Agent{Node: a.Node(), State: Connecting}, stream: client.Stream{Filter: console.AuditFilter{Namespace: f.o.Namespace}}}
		f.following[a.Node()] = g
		all.Go(func() { g.lines(one) })
		all.Go(func() { g.problems(one) })
	}
	for node, g := range f.following {
		if !listed[node] {
			g.stop()
			delete(f.following, node)
		}
	}
}

// list returns the agents, by the names of their nodes.
func (f *feed) list() (out []*following) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.following {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *following) int { return cmp.Compare(a.node, b.node) })
	return out
}

// agents returns what the page is told of them.
func (f *feed) agents() Agents {
	out := Agents{Agents: []Agent{}}
	for _, g := range f.list() {
		out.Agents = append(out.Agents, g.now())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Message = f.trouble
	return out
}

// following is the agent of one node, and its successors. It implements client.Agent.
type following struct {
	feed   *feed
	node   string // its name in the cluster, "" at a socket
	stop   context.CancelFunc
	stream client.Stream // of the goroutine that follows

	mu           sync.Mutex // of what follows
	agent        client.Agent
	state        Agent
	asked        time.Time       // of the log, while there is no answer; zero otherwise
	statusAsked  time.Time       // the same of the status
	statusFailed string          // why there is none
	status       *console.Status // the last answer
}

// locked calls do under the lock.
func (g *following) locked(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
}

// lines follows the log.
func (g *following) lines(ctx context.Context) {
	for pause := leastPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		var agent client.Agent
		g.locked(func() { agent, g.asked = g.agent, g.feed.o.Now() })
		err := g.stream.Read(ctx, agent, func() {
			pause = leastPause
			g.locked(func() { g.asked, g.state.State, g.state.Message = time.Time{}, Well, "" })
		}, g.take)
		g.failed(err, pause)
		g.feed.o.pause(ctx, pause)
	}
}

// take takes a line of the log.
func (g *following) take(text []byte) {
	line, err := audit.ParseLine(text)
	gap := (*audit.Gap)(nil)
	switch {
	case err == nil:
		g.locked(func() { g.state.Node = cmp.Or(g.state.Node, line.Node) }) // of the agent at a socket
		g.feed.store.add(&line)
	case errors.As(err, &gap):
		g.locked(func() { g.state.Lost += gap.Count })
	}
}
