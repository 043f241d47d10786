package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// files reads logs. A file that is not there ends it before anything is written; of
// one that cannot be read to its end what was read counts.
func (s *suggesting) files(cmd *cobra.Command, paths []string) error {
	open := make([]io.Reader, len(paths))
	for i, path := range paths {
		if path == "-" {
			open[i] = cmd.InOrStdin()
			continue
		}
		f, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no file %s; write the path of an audit log, - for the standard input, or nothing to ask the agents", path)
		case err != nil:
			return fmt.Errorf("read the log: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		open[i] = f
	}
	for i, path := range paths {
		if err := s.read(path, interruptible(ctxOf(cmd), open[i])); err != nil {
			s.say("%s cannot be read to its end: %v", path, err)
			s.broken = errors.Join(s.broken, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return nil
}

// live asks the agents for what they still hold, or follows them. One that does not
// answer does not lose what the others say.
func (s *suggesting) live(ctx context.Context) error {
	agents, query, err := s.ask.about(ctx, s.pod)
	if err != nil {
		return err
	}
	if len(agents) == 0 {
		return &console.Unreachable{Err: errors.New("there is no agent to ask; is Namegate installed here?")}
	}
	if s.during > 0 {
		query.Set("follow", "1")
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, s.during)
		defer stop()
	}
	return s.gather(ctx, agents, query)
}

// gather reads the lines of all agents at once. The error is for when nobody answers.
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
	resp, err := a.Ask(ctx, console.AuditPath, query)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // it was only read
		name := "agent"
		if a.Node() != "" {
			name += " of " + a.Node()
		}
		err = s.read(name, resp.Body)
	}
	if s.during > 0 && ctx.Err() != nil {
		return nil
	}
	return err
}
