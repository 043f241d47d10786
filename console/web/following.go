package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
)

// slowAfter is how long an agent may take to answer before the page says that it is slow.
const slowAfter = 2 * time.Second

// failed notes why no lines arrive, and when the agent is asked again.
func (g *following) failed(err error, pause time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked, g.state.State = time.Time{}, Unreachable
	var refusal *console.Refusal
	if errors.As(err, &refusal) {
		g.state.State = Refused
	}
	g.state.Message = console.OneLine(err.Error()) + fmt.Sprintf(" (it is asked again after %s)", pause)
}

// Node returns the node's name.
func (g *following) Node() string { return g.now().Node }

// Ask asks the agent, unless its lines do not arrive.
func (g *following) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if state := g.now(); state.State == Unreachable {
		return nil, console.Refuse(http.StatusServiceUnavailable, "%s", state.Message)
	}
	var agent client.Agent
	g.locked(func() { agent = g.agent })
	return agent.Ask(ctx, path, query)
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

// problems asks for the agent's status, again and again.
func (g *following) problems(ctx context.Context) {
	for g.feed.o.pause(ctx, g.askStatus(ctx)) {
	}
}

// askStatus asks once, and returns the pause until the next time.
func (g *following) askStatus(ctx context.Context) time.Duration {
	var agent client.Agent
	g.locked(func() { agent, g.statusAsked = g.agent, g.feed.o.Now() })
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
		g.statusFailed = "the agent's status cannot be read: " + console.OneLine(err.Error())
	}
	return statusEvery
}
