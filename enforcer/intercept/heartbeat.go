package intercept

import (
	"context"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
)

// heartbeat is the interval at which interception is renewed; a third of the switch's
// timeout leaves room for a failed one.
const heartbeat = time.Second

// maxBeat bounds a heartbeat: one that begins when it is due and takes this long still
// renews interception in time. On a node without processor time late answers are better
// than none.
const maxBeat = layout.HeartbeatTimeout - heartbeat

// Begin has KeepAlive renew interception from now on: the kernel leads queries to this agent,
// and the heartbeats of the agent before it end. It never waits.
func (i *Interception) Begin() { i.begin() }

// KeepAlive renews interception, from Begin on, once a second for as long as probe succeeds,
// which must query the proxy's own serving sockets. When interception comes back after it had ended,
// returned is called, because the resolver answered pods meanwhile. It returns when ctx
// ends; interception continues for layout.HeartbeatTimeout unless Disable is called.
func (i *Interception) KeepAlive(ctx context.Context, probe func(context.Context) error, returned func()) {
	select {
	case <-ctx.Done():
		return
	case <-i.begun:
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	failing, last := false, i.cfg.Now()
	for {
		began := i.cfg.Now()
		err := i.Beat(ctx, probe)
		if ctx.Err() != nil {
			return
		}
		changed := failing != (err != nil)
		failing = err != nil
		i.cfg.Beaten(began, err, changed)
		switch {
		case changed && failing:
			i.cfg.Log.Error("interception is not renewed and ends until it is", "error", err)
		case changed:
			i.cfg.Log.Info("interception is on again")
		}
		if now := i.cfg.Now(); !failing {
			if now.Sub(last) > layout.HeartbeatTimeout {
				go returned()
			}
			last = now
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-i.renew:
		}
	}
}

// Beat renews interception once, if probe succeeds.
func (i *Interception) Beat(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxBeat)
	defer cancel()
	if err := probe(ctx); err != nil {
		return err
	}
	if err := i.cfg.Tables.Heartbeat(ctx); err != nil {
		return err
	}
	now := i.cfg.Now()
	i.beaten.Store(&now)
	return nil
}

// On tells whether DNS packets come to this agent now.
func (i *Interception) On() bool {
	last := i.beaten.Load()
	return last != nil && i.cfg.Now().Sub(*last) < layout.HeartbeatTimeout
}

// Renew makes KeepAlive renew interception immediately: a rebuilt table begins without
// it. It never waits.
func (i *Interception) Renew() {
	select {
	case i.renew <- struct{}{}:
	default:
	}
}

// Disable ends interception at once, after KeepAlive: the resolver answers pods while
// no agent does.
func (i *Interception) Disable(ctx context.Context) error { return i.cfg.Tables.Disable(ctx) }
