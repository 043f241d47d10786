package enforcer

import (
	"context"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// planOf returns what the kernel must hold for a snapshot, by pod.
func (e *Enforcer) planOf(s *policy.Snapshot) dataplane.Subjects {
	return plan.Of(s, plan.Placement{Homes: e.homes, BridgesUnseen: e.unseen}, e.lists)
}

// tablesInput is what the nft tables depend on, for a plan and the snapshot that is in force, or comes into
// force, with it; nil before the first.
func (e *Enforcer) tablesInput(subjects dataplane.Subjects, inForce *policy.Snapshot) *ruleset.Input {
	pods, node := e.predecessors()
	assigned, relays := e.intercept.Relays()
	in := &ruleset.Input{
		Mode: e.mode(), Grants: e.grants, Subjects: subjects, InForce: inForce, Coming: e.coming, Entered: e.entered,
		Bound: e.bound(subjects), Known: plan.Known(inForce), Gateways: e.gateways, Recheck: e.flows.Recorded(),
		DNS: ruleset.DNS{Network: e.intercept.Network(), Endpoint: e.cfg.Endpoint, Serving: e.intercept.Serving(), Predecessor: pods, FailClosed: e.cfg.FailClosed},
	}
	in.Relays = layout.Relays{Own: relays, Dials: e.mode().Bits, Guarded: slices.Concat(assigned, relays, e.relaysBefore)}
	slices.SortFunc(in.Relays.Guarded, netip.AddrPort.Compare)
	in.Relays.Guarded = slices.Compact(in.Relays.Guarded)
	if !e.cfg.FailClosed {
		in.DNS.Fallback = e.intercept.Fallback()
	}
	if in.DNS.Network.NodeDNS || len(node) > 0 {
		in.DNS.Node = &layout.NodeDNS{Resolvers: e.intercept.NodeServing(), Predecessor: node, Mark: e.SocketMark(), LoopTest: e.intercept.LoopTestName()}
	}
	return in
}

// tables are the wanted nft tables, and applyTables makes the kernel hold them.
func (e *Enforcer) tables(subjects dataplane.Subjects, inForce *policy.Snapshot) []nft.Table {
	return ruleset.Render(e.tablesInput(subjects, inForce), &e.memo)
}

func (e *Enforcer) applyTables(ctx context.Context, subjects dataplane.Subjects, inForce *policy.Snapshot, unsettled ...netip.Addr) error {
	in := e.tablesInput(subjects, inForce)
	in.Unsettled = unsettled
	before := e.judging.Load()
	if inForce != nil {
		e.judging.Store(newJudging(before, inForce, subjects)) // connections are led here from the moment of the write on
	}
	err := e.k.Tables.Apply(ctx, ruleset.Render(in, &e.memo))
	if err != nil {
		e.judging.Store(before)
	}
	if err == nil && in.DNS.Node != nil {
		e.intercept.Guard(in.DNS.Node.Resolvers)
	}
	return err
}

// tablesInForce is what the nft tables hold.
func (e *Enforcer) tablesInForce() layout.InForce { return layout.InForce{Tables: e.k.Tables} }

// mode is how the tables decide the Namespace tier: as the dataplane does or, while the other one counts, as both do.
func (e *Enforcer) mode() layout.Mode {
	_, inTables := e.plane.Interface.(dataplane.InTables)
	other := e.plane.counts.Load()
	return layout.Mode{Bits: layout.Bits{Admitted: e.cfg.Mark, Candidate: e.cfg.Candidate, Accepted: e.cfg.Accepted}, Candidates: !inTables || other, HasGrants: inTables || other}
}

// state returns what the dataplane is to hold.
func (e *Enforcer) state(subjects dataplane.Subjects) dataplane.State {
	return dataplane.State{Subjects: subjects, Grants: e.grants}
}
