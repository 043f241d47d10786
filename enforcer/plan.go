package enforcer

import (
	"context"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// planOf returns what the kernel must hold for a snapshot, by pod.
func (e *Enforcer) planOf(s *policy.Snapshot) dataplane.Subjects {
	return plan.Of(s, plan.Placement{Homes: e.homes, BridgesUnseen: e.unseen}, e.lists)
}

// tablesState is the wanted state of the nft tables for a plan and the snapshot that is in force, or comes into
// force, with it; nil before the first.
func (e *Enforcer) tablesState(subjects dataplane.Subjects, inForce *policy.Snapshot) nft.State {
	pods, node := e.predecessors()
	in := ruleset.Input{
		Subjects: subjects, InForce: inForce, Coming: e.coming, Entered: e.entered,
		Known: e.known, Gateways: e.gateways, Recheck: e.flows.Recorded(),
		DNS: ruleset.DNS{Network: e.intercept.Network(), Endpoint: e.cfg.Endpoint, Serving: e.intercept.Serving(), Predecessor: pods, FailClosed: e.cfg.FailClosed},
	}
	if e.k.Tables.HaveGrants() {
		in.Grants = e.grants
	}
	if !e.cfg.FailClosed {
		in.DNS.Fallback = e.intercept.Fallback()
	}
	if in.DNS.Network.NodeDNS || len(node) > 0 {
		in.DNS.Node = &nft.NodeDNS{Resolvers: e.intercept.NodeServing(), Predecessor: node, Mark: e.SocketMark(), LoopTest: e.intercept.LoopTestName()}
	}
	return ruleset.Render(&in)
}

// applyTables makes the nft tables hold such a state.
func (e *Enforcer) applyTables(ctx context.Context, subjects dataplane.Subjects, inForce *policy.Snapshot) error {
	s := e.tablesState(subjects, inForce)
	err := e.k.Tables.Apply(ctx, s)
	if err == nil && s.NodeDNS != nil {
		e.intercept.Guard(s.NodeDNS.Resolvers)
	}
	return err
}

// state returns what the dataplane is to hold.
func (e *Enforcer) state(subjects dataplane.Subjects) dataplane.State {
	return dataplane.State{Subjects: subjects, Grants: e.grants}
}
