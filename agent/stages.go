package agent

import (
	"context"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// stages are the stages of a roll-out on the enforcer, the proxy and the network.
type stages struct{ *agent }

func (s *stages) Attach(ctx context.Context, state rollout.State) error {
	s.nodes.learn(state)
	return s.network.attach(ctx, state.Cluster)
}

func (s *stages) Prepare(ctx context.Context, snap *policy.Snapshot) (*policy.Snapshot, error) {
	s.network.follow(ctx, snap)
	err := s.enforce.Prepare(ctx, snap)
	return s.enforce.Coming(), err
}

func (s *stages) Publish(snap *policy.Snapshot) { s.proxy.Publish(snap) }

func (s *stages) Warm(ctx context.Context, v *policy.View, names []fqdn.Name) {
	s.logCold(s.proxy.WarmNames(ctx, v, names))
}

func (s *stages) Commit(ctx context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error) {
	snap, err := s.enforce.CommitPart(ctx, waiting)
	if s.host != nil && err == nil {
		s.holdUnconfirmed(ctx, snap)
	}
	return snap, err
}

func (s *stages) Settle(ctx context.Context) error { return s.network.settle(ctx) }

// views returns the views in force.
func (a *agent) views() []*policy.View { return a.rollout.Status().Views() }

// warmAll grants the addresses that the exact names of all views have now. Where that
// fails the proxy tries again.
func (a *agent) warmAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rollout.WarmTime)
	defer cancel()
	a.logCold(a.proxy.Warm(ctx, a.views()))
}

func (a *agent) logCold(err error) {
	if err != nil {
		a.log.Warn("some exact names are not granted yet; trying again", "error", err)
	}
}
