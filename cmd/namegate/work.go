package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
	"golang.org/x/sync/errgroup"
)

func (a *agent) startProxy(serving []netip.Addr) error {
	var err error
	o := proxy.Options{Config: a.config, Granter: a.enforce, Logger: a.log}
	if a.audit != nil {
		o.Log = a.audit
	}
	if a.proxy, err = proxy.New(o); err != nil {
		return err
	}
	a.nodes = &nodeAddresses{read: a.kernel.Links.Addrs, tell: a.proxy.SetCluster, log: a.log}
	if err := a.nodes.look(); err != nil {
		return err
	}
	var listen []netip.AddrPort
	for _, s := range serving {
		listen = append(listen, netip.AddrPortFrom(s, 53))
	}
	return a.proxy.Listen(listen)
}

// work runs until ctx ends or a part of the agent cannot go on.
func (a *agent) work(ctx context.Context, serving []netip.Addr) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.source.Run(ctx, a.rollout.offer) })
	g.Go(func() error { a.rollout.run(ctx); return nil })
	g.Go(func() error { a.enforce.RunExpiry(ctx); return nil })
	g.Go(func() error {
		w := configWatch{path: a.config.File, last: a.text, apply: a.proxy.Configure, log: a.log, after: time.After}
		return w.run(ctx)
	})
	g.Go(func() error {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		a.nodes.run(ctx, tick.C)
		return nil
	})
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.rollout.first:
		}
		g.Go(func() error { return a.enforce.RunReconcile(ctx) })
		return a.enforce.KeepAlive(ctx, func(ctx context.Context) error { return a.probe(ctx, serving) }, func() {
			a.warm(ctx, a.rollout.views())
		})
	})
	return g.Wait()
}

// probe asks every serving socket.
func (a *agent) probe(ctx context.Context, serving []netip.Addr) error {
	for _, s := range serving {
		if err := a.proxy.SelfQuery(ctx, netip.AddrPortFrom(s, 53)); err != nil {
			return err
		}
	}
	return nil
}

// warmTime bounds how long exact names are resolved before policies come into force.
const warmTime = 2 * time.Second

// warm grants what the exact names of views have now. What fails is asked again
// by the pods themselves.
func (a *agent) warm(ctx context.Context, views []*policy.View) {
	if len(views) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	if err := a.proxy.Warm(ctx, views); err != nil {
		a.log.Warn("some exact names are not granted until a pod asks for them", "error", err)
	}
}
