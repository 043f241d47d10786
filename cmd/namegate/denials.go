package main

import (
	"context"
	"net/netip"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// decisions is the proxy's log: the audit log, if there is one, and what denials
// remember of answers.
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

// Repeats implements proxy.Repeater: what is given again is remembered already.
func (d decisions) Repeats() bool { return d.log != nil }

// openDenials prepares what tells of denied connections; nothing comes before
// runDenials.
func (a *agent) openDenials() error {
	packets, err := nflog.Open(nft.LogGroup, a.log)
	if err != nil {
		return err
	}
	a.kernel.closers = append(a.kernel.closers, packets.Close)
	a.packets, a.memory = packets, recent.NewMemory()
	a.enforce.OnTakenBack(a.memory.Remember)
	o := denial.Options{
		Packets: packets, Memory: a.memory, Logger: a.log,
		Snapshot: func() *policy.Snapshot { return a.rollout.snapshot() },
		Granted:  a.enforce.NamesOf, GrantedToAnybody: a.enforce.NamesOfAnybody,
		Resolves: a.enforce.Resolves,
		Reached:  a.reached,
	}
	if a.audit != nil {
		o.Log = a.audit.WriteFlow
	}
	a.denials = denial.New(o)
	return nil
}

// reached returns where the kernel led a connection.
func (a *agent) reached(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, bool) {
	f, known, err := a.kernel.Flows.Lookup(proto, src, dst)
	return f.Peer, known && err == nil
}

// runDenials tells of denied connections until ctx ends. That nobody can tell of them
// changes nothing of what is denied.
func (a *agent) runDenials(ctx context.Context) {
	if err := a.denials.Run(ctx); err != nil {
		a.log.Error("denied connections are not told of until the agent starts anew", "error", err)
	}
}
