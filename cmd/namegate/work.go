package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"golang.org/x/sync/errgroup"
)

func (a *agent) startProxy(serving []netip.Addr) error {
	nodes, err := a.kernel.Links.Addrs()
	if err != nil {
		return err
	}
	o := proxy.Options{Config: a.config, Granter: a.enforce, Logger: a.log}
	if a.audit != nil {
		o.Log = a.audit
	}
	if a.proxy, err = proxy.New(o); err != nil {
		return err
	}
	a.proxy.SetCluster(proxy.Cluster{Nodes: nodes})
	var listen []netip.AddrPort
	for _, s := range serving {
		listen = append(listen, netip.AddrPortFrom(s, 53))
	}
	return a.proxy.Listen(listen)
}

// work runs until ctx ends or a part of the agent cannot go on.
func (a *agent) work(ctx context.Context, serving []netip.Addr, config string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.source.Run(ctx, a.rollout.offer) })
	g.Go(func() error { a.rollout.run(ctx); return nil })
	g.Go(func() error { a.enforce.RunExpiry(ctx); return nil })
	g.Go(func() error { return a.watchConfig(ctx, config) })
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

// configQuiet is how long a Corefile must not change before it is read: editors
// write in several steps.
const configQuiet = 200 * time.Millisecond

// watchConfig applies changes of the Corefile; a bad one is refused and the
// running configuration stays.
func (a *agent) watchConfig(ctx context.Context, path string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer w.Close()
	if err := w.Add(dirOf(path)); err != nil {
		return fmt.Errorf("watch the folder of %s: %w", path, err)
	}
	last, _ := os.ReadFile(path)
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			quiet = time.After(configQuiet)
		case err := <-w.Errors:
			a.log.Warn("changes of the Corefile may go unseen", "error", err)
		case <-quiet:
			now, err := os.ReadFile(path)
			if err == nil && string(now) == string(last) {
				continue
			}
			last = now
			a.reload(path)
		}
	}
}

func (a *agent) reload(path string) {
	c, err := corefile.Load(path)
	if err != nil {
		a.log.Error("the Corefile is refused; the running configuration stays", "error", err)
		return
	}
	pending := a.proxy.Configure(c)
	a.log.Info("Corefile applied", "file", path)
	if len(pending) > 0 {
		a.log.Warn("some directives wait for the agent's next start", "directives", pending)
	}
}
