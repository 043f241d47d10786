package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/namegate/namegate/proxy/corefile"
)

const (
	// configQuiet is how long a Corefile must not change before it is read:
	// editors write in several steps.
	configQuiet = 200 * time.Millisecond
	// configMaxDelay is how long changes that do not end may delay the reading.
	configMaxDelay = 2 * time.Second
	// configPoll is how often it is read without a change notification: the target of a
	// link is not watched, nor is a folder that is made later.
	configPoll = 30 * time.Second
)

// loaded is a Corefile that was read and parsed.
type loaded struct {
	source *corefile.Source
	config *corefile.Config
	err    error
}

// load reads and parses the Corefile but does not wait for it beyond the end of
// ctx: the files may be on a file system that hangs.
func load(ctx context.Context, path string) (loaded, error) {
	return await(ctx, func() loaded {
		s := corefile.Read(path)
		c, err := s.Config()
		return loaded{s, c, err}
	})
}

// await returns f's error, or ctx's error if ctx ends first. f continues then.
func await[T any](ctx context.Context, f func() T) (T, error) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// configWatch applies changes of the Corefile, and of the files that it imports. A bad
// Corefile is refused and the running configuration stays.
type configWatch struct {
	path  string
	last  *corefile.Source // as it was read last
	apply func(*corefile.Config) (pending []string)
	log   *slog.Logger
	after func(time.Duration) <-chan time.Time
}

// run watches until ctx ends. Changes since last was read count.
func (c *configWatch) run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.path, err)
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(c.path)); err != nil {
		return fmt.Errorf("watch the folder of %s: %w", c.path, err)
	}
	c.follow(ctx, w.Events, w.Errors, func() {
		for _, dir := range c.last.Folders() {
			_ = w.Add(dir) // a missing one is tried again at the next reading
		}
	})
	return nil
}

// follow reads the Corefile again after its changes have settled, or have continued for
// too long. It calls watch before each reading.
func (c *configWatch) follow(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, watch func()) {
	var quiet, most <-chan time.Time
	again := c.after(0)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if !c.last.Concerns(e.Name) {
				continue
			}
			quiet = c.after(configQuiet)
			if most == nil {
				most = c.after(configMaxDelay)
			}
			continue
		case err := <-errs:
			c.log.Warn("changes of the Corefile may go unseen", "error", err)
			continue
		case <-quiet:
		case <-most:
		case <-again:
			again = c.after(configPoll)
		}
		quiet, most = nil, nil
		watch()
		c.reload(ctx)
	}
}

// reload reads the Corefile and applies it if it differs.
func (c *configWatch) reload(ctx context.Context) {
	l, err := load(ctx, c.path)
	if err != nil {
		return
	}
	same := l.source.Same(c.last)
	if c.last = l.source; same {
		return
	}
	if l.err != nil {
		c.log.Error("the Corefile is refused; the running configuration stays", "error", l.err)
		return
	}
	pending := c.apply(l.config)
	c.log.Info("Corefile applied", "file", c.path)
	if len(pending) > 0 {
		c.log.Warn("some directives need a restart of the agent", "directives", pending)
	}
}

// reconfigure applies a Corefile.
func (a *agent) reconfigure(c *corefile.Config) (pending []string) {
	if err := a.source.follow(c); err != nil {
		a.log.Error("the Corefile is refused; the running configuration stays", "error", err)
		return nil
	}
	pending = a.proxy.Configure(c)
	a.enforce.Grants().SetBounds(c.Limits.GrantsPerPod, c.Limits.Grants)
	a.config.Store(c)
	if a.host != nil {
		a.host.reconfigured()
	}
	if a.audit != nil {
		a.audit.Filter(c.AuditFilter)
	}
	a.rollout.Reconfigure()
	return pending
}
