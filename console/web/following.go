package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
)

// slowAfter is how long an agent may take to answer before the page says that it is slow.
const slowAfter = 2 * time.Second

// ask notes that the log is asked for, and returns the agent to ask.
func (g *following) ask() client.Agent {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = g.feed.o.Now()
	return g.agent
}

// begun notes that lines arrive.
func (g *following) begun() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked, g.state.State, g.state.Message = time.Time{}, Well, ""
}

// received notes a line, which names the node of the agent at a socket.
func (g *following) received(l *audit.Line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Node = cmp.Or(g.state.Node, l.Node)
}

// lost counts lines that the agent could not hand over.
func (g *following) lost(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Lost += n
}

// failed notes why no lines arrive, and when the agent is asked again.
func (g *following) failed(err error, pause time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked, g.state.State = time.Time{}, Unreachable
	var refusal *console.Refusal
	if errors.As(err, &refusal) {
		g.state.State = Refused
	}
	g.state.Message = print.OneLine(err.Error()) + fmt.Sprintf(" (it is asked again after %s)", pause)
}

// current returns the agent that was found last.
func (g *following) current() client.Agent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.agent
}

// Node returns the node's name.
func (g *following) Node() string { return g.now().Node }

// Ask asks the agent, unless its lines do not arrive.
func (g *following) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if state := g.now(); state.State == Unreachable {
		return nil, console.Refuse(http.StatusServiceUnavailable, "%s", state.Message)
	}
	return g.current().Ask(ctx, path, query)
}

// now returns what the page is told.
func (g *following) now() Agent {
	g.mu.Lock()
	defer g.mu.Unlock()
	out, now := g.state, g.feed.o.Now()
	late := func(asked time.Time) bool { return !asked.IsZero() && now.Sub(asked) >= slowAfter }
	switch {
	case late(g.asked):
		out.State, out.Message = Slow, fmt.Sprintf("the agent has not begun to send its lines for %s", now.Sub(g.asked).Truncate(time.Second))
	case out.State == Well && late(g.statusAsked):
		out.State, out.Message = Slow, "the agent sends lines, and does not answer the question for its status"
	case out.State == Well && g.statusFailed != "":
		out.State, out.Message = Slow, g.statusFailed
	}
	if out.Problems == nil {
		out.Problems = []print.Finding{}
	}
	return out
}

// lastStatus is the agent's last answer about its status, nil where the last question had none.
func (g *following) lastStatus() *console.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// problems asks for the agent's status, again and again.
func (g *following) problems(ctx context.Context) {
	for ctx.Err() == nil {
		pause := g.askStatus(ctx)
		select {
		case <-ctx.Done():
			return
		case <-g.feed.o.After(pause):
		}
	}
}

// askStatus asks once, and returns the pause until the next time.
func (g *following) askStatus(ctx context.Context) time.Duration {
	g.mu.Lock()
	agent := g.agent
	g.statusAsked = g.feed.o.Now()
	g.mu.Unlock()
	limited, stop := g.feed.o.within(ctx)
	defer stop()
	answers, _, err := client.Gather[console.Status](limited, []client.Agent{agent}, console.StatusPath, nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.statusAsked, g.statusFailed, g.state.NoProblems, g.status = time.Time{}, "", "", nil
	var refusal *console.Refusal
	switch {
	case err == nil:
		s := &answers[0]
		g.status, g.state.Problems, g.state.Version = s, print.Findings(s), s.Version
		g.state.Node = cmp.Or(g.state.Node, s.Node)
	case errors.As(err, &refusal) && refusal.Status == http.StatusForbidden:
		g.state.Problems, g.state.NoProblems = nil, refusal.Message
		return statusRefused
	case limited.Err() != nil:
		g.statusFailed = "the agent sends lines, and did not answer the question for its status within " + patience.String()
	default:
		g.statusFailed = "the agent's status cannot be read: " + print.OneLine(err.Error())
	}
	return statusEvery
}
