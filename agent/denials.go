package agent

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// decisions is the proxy's log: the audit log, if there is one, and the memory of answers
// that denials are explained by.
type decisions struct {
	log    *audit.Log // nil where nothing is logged
	memory *recent.Memory
}

// Write implements proxy.DecisionLog.
func (d decisions) Write(r audit.Record) {
	d.memory.Note(&r)
	if d.log != nil {
		d.log.Write(r)
	}
}

// Prepare implements proxy.DecisionLog.
func (d decisions) Prepare(r *audit.Record) *audit.Prepared {
	if d.log == nil {
		return nil
	}
	return d.log.Prepare(r)
}

// Repeat implements proxy.DecisionLog: the memory has the answer already.
func (d decisions) Repeat(p *audit.Prepared, at time.Time, from netip.Addr, latency time.Duration) {
	d.log.Repeat(p, at, from, latency)
}

// openDenials prepares the report of denied connections.
func (a *agent) openDenials() error {
	packets, err := nflog.Open(layout.LogGroup, a.log)
	if err != nil {
		return err
	}
	a.kernel.closers = append(a.kernel.closers, packets.Close)
	a.packets, a.memory = packets, recent.NewMemory()
	a.enforce.Grants().OnTakenBack(a.memory.Remember)
	o := denial.Options{
		Packets: packets, Memory: a.memory, Logger: a.log,
		Snapshot: func() *policy.Snapshot { return a.rollout.Status().InForce },
		Granted:  a.enforce.Grants().NamesOf, GrantedToAnybody: a.enforce.Grants().NamesOfAnybody,
		Resolves: a.enforce.Resolves, CountsByName: a.enforce.CountsByName,
		Reached: a.reached, Remote: func() []*policy.Pod { return a.rollout.Status().Applied.Input.Remote },
	}
	if a.audit != nil {
		o.Log = a.audit.WriteFlow
	}
	a.denials = denial.New(o)
	return nil
}

// reached returns the destination that the kernel translated a connection to. One that is led to the relay is judged as
// if it reached what it dialled.
func (a *agent) reached(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, bool) {
	f, known, err := a.kernel.Flows.Lookup(proto, src, dst)
	if intercept.IsRelay(f.Peer) {
		f.Peer = dst
	}
	return f.Peer, known && err == nil
}
