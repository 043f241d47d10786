package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"golang.org/x/sync/errgroup"
)

func (a *agent) startProxy(serving []netip.Addr) error {
	var err error
	o := proxy.Options{Config: a.config.Load(), Granter: a.enforce, Logger: a.log, Log: decisions{a.audit, a.memory}}
	if a.proxy, err = proxy.New(o); err != nil {
		return err
	}
	a.nodes = &nodeAddresses{read: a.kernel.Links.Addrs, held: a.network.held, tell: a.proxy.SetCluster, log: a.log}
	if err := a.nodes.look(); err != nil {
		return err
	}
	return a.proxy.Listen(sockets(serving))
}

// work runs until ctx ends or a part of the agent cannot go on, and then hands over
// to the agent that stands by, if one does. Queries are intercepted and answered
// all the time.
func (a *agent) work(ctx context.Context, f agentFlags, release func()) error {
	alive, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		select {
		case <-alive.Done():
		case <-a.rollout.first:
			_ = a.enforce.KeepAlive(alive, a.probe, func() {
				a.proxy.ForgetWarmUps()
				a.warm(alive, a.rollout.views())
			})
		}
	}()
	err := a.write(ctx, f)
	a.stopPaths()
	taken := a.handOver(f, release)
	stopBeating()
	<-beating
	if !taken {
		err = errors.Join(err, a.enforce.Disable(context.WithoutCancel(ctx)))
	}
	return err
}

// write does what one agent at a time does, until ctx ends or a part of it cannot go on.
func (a *agent) write(ctx context.Context, f agentFlags) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.rollout.run(ctx); return nil })
	g.Go(func() error { a.enforce.RunExpiry(ctx); return nil })
	g.Go(func() error { a.runDenials(ctx); return nil })
	g.Go(func() error {
		w := configWatch{path: a.config.Load().File, last: a.text, apply: a.reconfigure, log: a.log, after: time.After}
		return w.run(ctx)
	})
	g.Go(func() error {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		a.nodes.run(ctx, tick.C)
		return nil
	})
	if f.metricsAddr != "" {
		g.Go(func() error { a.keepMetrics(ctx, f.metricsAddr, f.pprof); return nil })
	}
	if len(f.listen.addresses) > 0 {
		g.Go(func() error { a.keepConsole(ctx, f, a.console(f)); return nil })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.rollout.first:
		}
		g.Go(func() error { return a.enforce.RunReconcile(ctx) })
		g.Go(func() error { a.paths.run(ctx); return nil })
		if a.cluster != nil {
			g.Go(func() error { return a.cluster.tell(ctx, a.findings) })
		}
		return nil
	})
	return g.Wait()
}

// reconfigure applies a Corefile.
func (a *agent) reconfigure(c *corefile.Config) (pending []string) {
	if err := a.source.follow(c); err != nil {
		a.log.Error("the Corefile is refused; the running configuration stays", "error", err)
		return nil
	}
	pending = a.proxy.Configure(c)
	a.config.Store(c)
	if a.audit != nil {
		a.audit.Filter(c.AuditFilter)
	}
	a.rollout.reconfigure()
	return pending
}

// probe asks every serving socket.
func (a *agent) probe(ctx context.Context) error {
	a.proxy.Retime()
	for _, s := range a.proxy.Addrs() {
		if err := a.proxy.SelfQuery(ctx, s); err != nil {
			return err
		}
	}
	a.health.set(func(h *health) { h.probed = h.now() })
	return nil
}
