package agent

import (
	"context"
	"sync"
)

// startHeartbeat renews interception from the moment that the kernel leads queries to this
// agent, for as long as the proxy answers the agent's own queries, until stop, which waits for its end.
func (a *agent) startHeartbeat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beat sync.WaitGroup
	beat.Go(func() {
		a.enforce.Interception().KeepAlive(ctx, a.probe, func() {
			go a.beginAudit(ctx) // which waits for a predecessor
			a.proxy.ForgetWarmUps()
			a.warmAll(ctx)
		})
	})
	return func() {
		cancel()
		beat.Wait()
	}
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
