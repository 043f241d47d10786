package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
)

const (
	// configPoll is how often the Corefile and the files that it imports are read.
	configPoll = time.Second
	// configPolls is after how many polls a change is applied at the latest, though the files go on changing.
	configPolls = 4
)

// await returns f's result, or ctx's error if ctx ends first. f continues then: files may be on a
// file system that hangs.
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
	last  *corefile.Source // that was applied, or refused, last
	read  *corefile.Source // as it was read last
	polls int              // since it differs from last
	apply func(*corefile.Config) (pending []string)
	log   *slog.Logger
}

// run polls until ctx ends. Changes since last was read count.
func (c *configWatch) run(ctx context.Context) { every(ctx, configPoll, func() { c.poll(ctx) }) }

// poll reads the Corefile and applies it if it differs from the last. It waits until two polls read
// the same, as editors write in several steps.
func (c *configWatch) poll(ctx context.Context) {
	now, err := await(ctx, func() *corefile.Source { return corefile.Read(c.path) })
	if err != nil {
		return
	}
	before := c.read
	if c.read = now; now.Same(c.last) {
		c.polls = 0
		return
	}
	if c.polls++; c.polls < configPolls && (before == nil || !now.Same(before)) {
		return
	}
	c.last, c.polls = now, 0
	config, err := now.Config()
	if err != nil {
		c.log.Error("the Corefile is refused; the running configuration stays", "error", err)
		return
	}
	pending := c.apply(config)
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
