package agent

import "context"

// heartbeat is the renewal of interception.
type heartbeat struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// startHeartbeat renews interception from the moment that the kernel leads queries to this
// agent, for as long as the proxy answers the agent's own queries, until the heartbeat is
// stopped.
func (a *agent) startHeartbeat(ctx context.Context) heartbeat {
	ctx, cancel := context.WithCancel(ctx)
	h := heartbeat{cancel, make(chan struct{})}
	go func() {
		defer close(h.done)
		a.enforce.Interception().KeepAlive(ctx, a.probe, func() {
			go a.beginAudit(ctx) // which waits for a predecessor
			a.proxy.ForgetWarmUps()
			a.warmAll(ctx)
		})
	}()
	return h
}

// probe asks every serving socket.
func (a *agent) probe(ctx context.Context) error {
	a.proxy.Retime()
	for _, s := range a.proxy.Addrs() {
		if err := a.proxy.SelfQuery(ctx, s); err != nil {
			return err
		}
	}
	a.health.Answered()
	return nil
}

// finish is the end of an agent's service, for the hand-over.
type finish struct {
	agent *agent
	heartbeat
}

func (f *finish) Leaving() bool { return f.agent.leaving() }

func (f *finish) TakenOver(ctx context.Context) (bool, error) {
	return f.agent.enforce.Interception().TakenOver(ctx)
}

func (f *finish) StopHeartbeat() {
	f.cancel()
	<-f.done
}

func (f *finish) Disable(ctx context.Context) error {
	return f.agent.enforce.Interception().Disable(ctx)
}
