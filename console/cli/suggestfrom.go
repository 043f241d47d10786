package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// files reads logs, as eachLog opens them.
func (s *suggesting) files(cmd *cobra.Command, paths []string) error {
	broken, err := eachLog(cmd, paths, "or nothing to ask the agents", s.lines.say, s.read)
	s.broken = broken
	return err
}

// live asks the agents for the lines that they keep, or follows them. A failing agent
// does not affect the others' lines.
func (s *suggesting) live(ctx context.Context) error {
	agents, query, err := s.ask.about(ctx, s.pod)
	if err != nil {
		return err
	}
	if len(agents) == 0 {
		return &console.Unreachable{Err: errors.New("there is no agent to ask; is Namegate installed here?")}
	}
	if s.one.any() {
		query.Set("cluster", "1") // asks for the right to read the kind
	}
	if s.during > 0 {
		query.Set("follow", "1")
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, s.during)
		defer stop()
	}
	return s.gather(ctx, agents, query)
}

// gather reads the lines of all agents in parallel. The error is for the case that no
// agent answers.
func (s *suggesting) gather(ctx context.Context, agents []console.Agent, query url.Values) error {
	failed := make([]error, len(agents))
	var all sync.WaitGroup
	for i, a := range agents {
		all.Go(func() { failed[i] = s.agent(ctx, a, query) })
	}
	all.Wait()
	answered := false
	for i, err := range failed {
		if answered = answered || err == nil; err != nil && len(agents) > 1 {
			s.say("node %s: %v", agents[i].Node(), err)
		}
		s.broken = cmp.Or(s.broken, err)
	}
	if !answered {
		return s.broken
	}
	return nil
}

// agent reads the lines of one agent. That the time to follow it is over is no error.
func (s *suggesting) agent(ctx context.Context, a console.Agent, query url.Values) error {
	err := auditLines(ctx, a, query, func(name string, resp *http.Response) error { return s.read(name, resp.Body) })
	if s.during > 0 && ctx.Err() != nil {
		return nil
	}
	return err
}

// auditLines calls read with the answer of one agent, whose body is its lines.
func auditLines(ctx context.Context, a console.Agent, query url.Values, read func(name string, resp *http.Response) error) error {
	resp, err := a.Ask(ctx, console.AuditPath, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	name := "agent"
	if a.Node() != "" {
		name += " of " + a.Node()
	}
	return read(name, resp)
}
