package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/agent/handover"
	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/agent/socket"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

const (
	// drainTime is how long queries under way may take when the agent stops.
	drainTime = 5 * time.Second
	// leaveTime bounds how long an agent that is not to come back removes its rules.
	leaveTime = 20 * time.Second
)

// run reads the source, and does the agent's work as soon as the node is free.
func (a *agent) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	up := make(chan struct{})
	receive := a.rollout.Offer
	if a.host != nil {
		receive = a.host.receive
		g.Go(func() error { every(ctx, nodeAddressesPeriod, a.host.poll); return nil })
	}
	g.Go(func() error {
		// An agent that stands by has read everything before it takes the node. Any other
		// agent first starts all parts that can fail.
		if !a.o.Standby {
			select {
			case <-up:
			case <-ctx.Done():
				return nil
			}
		}
		return a.source.run(ctx, receive)
	})
	if a.cluster != nil {
		g.Go(func() error { return a.cluster.placement.Run(ctx) })
	}
	g.Go(func() error { return a.serve(ctx, func() { close(up) }) })
	return g.Wait()
}

// serve takes the node, starts the parts in the order of the design and stops them in the
// reverse order. It calls up when everything has started that can fail at the start.
func (a *agent) serve(ctx context.Context, up func()) error {
	lock := handover.NewLock(a.o.Socket)
	release, err := lock.Take(ctx, a.o.Standby, a.health.StandBy, a.log)
	if ctx.Err() != nil {
		return nil // ended while it stood by
	}
	if err != nil {
		return err
	}
	a.health.Active()
	defer release()
	defer a.leave()
	serving, err := a.startEnforcer(ctx)
	if err != nil {
		return err
	}
	defer a.closeAudit()
	var relayUntil time.Time
	defer func() {
		a.relay.close(relayUntil)
		a.enforce.Interception().StopRelays()
	}()
	defer a.enforce.Interception().Stop()
	if served, err := a.kernel.tables().NodeServing(ctx); err == nil { // else they are tested anew
		a.network.host.recover(slices.Collect(maps.Keys(served)))
	}
	if err := a.startProxy(serving); err != nil {
		return err
	}
	defer a.stopProxy()
	s, err := socket.Serve(a.o.Socket, a.console()(asRoot))
	if err != nil {
		return err
	}
	defer s.Close()
	a.log.Info("agent started", "dataplane", a.kernel.dataplane.Name, "reason", a.kernel.dataplane.Reason, "iptables", a.kernel.variant, "because", a.kernel.why)
	up()
	stop := a.startHeartbeat(context.WithoutCancel(ctx))
	err = a.work(ctx)
	ended := time.Now()
	if err := a.injector.Close(); err != nil {
		a.log.Warn("objects of the self-test remain; `namegate cleanup` removes them", "error", err)
	}
	interception := a.enforce.Interception()
	end := handover.Steps{Leaving: a.leaving, TakenOver: interception.TakenOver, StopHeartbeat: stop, Disable: interception.Disable}
	taken, endErr := lock.Finish(context.WithoutCancel(ctx), release, end, a.log)
	if taken {
		relayUntil = ended.Add(a.config.Load().ServerNames.Grace)
	}
	return errors.Join(err, endErr)
}

// startTries is the number of attempts to start the enforcer, startPause the pause
// between them: another program may briefly remove rules that a start has just written.
const (
	startTries = 3
	startPause = 200 * time.Millisecond
)

// startEnforcer starts the enforcer and returns the addresses to serve on.
func (a *agent) startEnforcer(ctx context.Context) (serving []netip.Addr, err error) {
	for try := 1; ; try++ {
		if serving, err = a.enforce.Start(ctx); err == nil || try == startTries || enforcer.IsMarkTaken(err) {
			return serving, err
		}
		a.log.Warn("the start failed; trying again", "after", startPause, "error", err)
		if wait(ctx, startPause) != nil {
			return nil, err
		}
	}
}

func (a *agent) startProxy(serving []netip.Addr) error {
	var err error
	o := proxy.Options{Config: a.config.Load(), Granter: a.enforce.Grants(), Logger: a.log, Log: decisions{a.audit, a.memory}, Dialled: a.enforce.Interception().Resolver, HostResolver: a.enforce.Interception().HostResolver, Unanswered: a.network.host.unanswered, Keep: a.enforce.Grants().Keep}
	if a.proxy, err = proxy.New(o); err != nil {
		return err
	}
	a.enforce.Grants().OnInUse(a.proxy.RenewNames)
	a.nodes = &nodeAddresses{read: a.kernel.Links.Addrs, parked: a.network.parked, set: a.proxy.SetCluster, log: a.log}
	if err := a.nodes.refresh(); err != nil {
		return err
	}
	return a.proxy.Listen(sockets(serving))
}

// work does what one agent at a time does, until ctx ends or a part of it cannot go on.
func (a *agent) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	run := func(part func(context.Context)) { g.Go(func() error { part(ctx); return nil }) }
	run(a.rollout.Run)
	run(a.enforce.RunExpiry)
	run(func(ctx context.Context) {
		if err := a.denials.Run(ctx); err != nil { // which does not affect enforcement
			a.log.Error("denied connections are not logged until the agent restarts", "error", err)
		}
	})
	run(func(ctx context.Context) {
		every(ctx, safeguardPeriod, func() {
			if a.safeguard.Due() {
				a.rollout.Recompile()
			}
		})
	})
	run(a.keepUnconfirmed)
	run(func(ctx context.Context) { a.relay.run(ctx, a.rollout.Reconfigure) })
	run(func(ctx context.Context) { every(ctx, nodeAddressesPeriod, a.nodes.poll) })
	run((&configWatch{path: a.config.Load().File, last: a.text, apply: a.reconfigure, log: a.log}).run)
	if a.o.MetricsAddr != "" {
		run(func(ctx context.Context) { metrics.Serve(ctx, a.o.MetricsAddr, a.metricsHandler(), a.log) })
	}
	if c := a.o.Cluster; c != nil && len(c.ConsoleAddrs) > 0 {
		// The next agent takes the port from this one.
		run(func(ctx context.Context) { keepListening(ctx, a.openConsole, a.console(), a.log, wait) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.rollout.First():
		}
		run(a.beginAudit)
		g.Go(func() error { return a.enforce.RunReconcile(ctx) })
		run(a.selfTest.run)
		run(a.network.host.run)
		if a.cluster != nil {
			g.Go(func() error {
				return a.cluster.report(ctx, a.findings, func() ([]policy.Problem, bool) {
					r := a.rollout.Status()
					return r.Problems, r.InSync() && len(a.enforce.Deviations()) == 0
				})
			})
		}
		return nil
	})
	return g.Wait()
}

// beginAudit says from when on the audit log has every decision: the resolver or another agent
// may have answered pods before.
func (a *agent) beginAudit(ctx context.Context) {
	if a.audit != nil {
		awaitAlone(ctx, a.enforce.Coexisting, wait, a.audit.Begin)
	}
}

// coexistingPoll is the interval at which an agent looks whether its predecessor has ended.
const coexistingPoll = 100 * time.Millisecond

// awaitAlone calls alone once no other agent answers queries of the node, unless ctx ends.
func awaitAlone(ctx context.Context, coexisting func() bool, pause func(context.Context, time.Duration) error, alone func()) {
	for coexisting() {
		if pause(ctx, coexistingPoll) != nil {
			return
		}
	}
	alone()
}

// stopProxy drains the proxy.
func (a *agent) stopProxy() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.proxy.Close(ctx); err != nil {
		a.log.Warn("queries were in flight when the agent stopped", "error", err)
	}
}

// closeAudit writes the end of the audit log.
func (a *agent) closeAudit() {
	if a.audit == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.audit.Close(ctx); err != nil {
		a.log.Warn("the end of the audit log is lost", "error", err)
	}
}

// leaving tells whether the agent is not to come back to this node.
func (a *agent) leaving() bool { return a.cluster != nil && a.cluster.placement.Leaving() }

// leave removes everything from the kernel if the agent is not to come back.
func (a *agent) leave() {
	if !a.leaving() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := errors.Join(a.enforce.Cleanup(ctx), inject.Remove()); err != nil {
		a.log.Error("objects of Namegate remain on this node; run `namegate cleanup` there", "error", err)
		return
	}
	a.log.Info("removed every rule, set, table and address of Namegate from this node")
}
