package enforcer

import (
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

// tablesState is the wanted state of the nft tables for a plan.
func (e *Enforcer) tablesState(subjects dataplane.Subjects) nft.State {
	in := e.tablesInput(subjects)
	return ruleset.Render(&in)
}

// preparedState is tablesState while a snapshot is prepared.
func (e *Enforcer) preparedState(subjects dataplane.Subjects) nft.State {
	in := e.tablesInput(subjects)
	in.Prepares = true
	return ruleset.Render(&in)
}

func (e *Enforcer) tablesInput(subjects dataplane.Subjects) ruleset.Input {
	pods, node := e.predecessors()
	in := ruleset.Input{
		Subjects: subjects, InForce: e.snapshot, Coming: e.coming,
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
	return in
}

// state returns what the dataplane is to hold.
func (e *Enforcer) state(subjects dataplane.Subjects) dataplane.State {
	return dataplane.State{Subjects: subjects, Grants: e.grants}
}
