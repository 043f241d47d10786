package main

import (
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
)

// deniedFacts are what is known of connections that were denied, or would be.
type deniedFacts struct {
	flows []denial.Total
	over  uint64  // connections in no flow
	lost  uint64  // times that packets were lost on their way from the kernel
	total *uint64 // packets; nil where the kernel does not say
}

func (a *agent) deniedFacts() deniedFacts {
	f := deniedFacts{flows: a.denials.Totals(), over: a.denials.Over(), lost: a.packets.Lost()}
	if n, err := a.kernel.Tables.Denied(); err == nil {
		f.total = &n
	}
	return f
}

var (
	flowVerdicts = [...]audit.FlowVerdict{audit.Denied, audit.WouldDeny}
	flowReasons  = [...]audit.FlowReason{audit.ReasonPorts, audit.ReasonExpired, audit.ReasonBlocked, audit.ReasonUnmatched, audit.ReasonAnother, audit.ReasonAddress}
)

// denied tells each pair of verdict and reason, also one of which there was none: a
// rate needs where it began.
func (t teller) denied(f deniedFacts) {
	type pair struct {
		verdict audit.FlowVerdict
		reason  audit.FlowReason
	}
	by := map[pair]uint64{}
	for _, of := range f.flows {
		by[pair{of.Verdict, of.Reason}] += of.Count
	}
	for _, verdict := range flowVerdicts {
		for _, reason := range flowReasons {
			t.count(descFlows, by[pair{verdict, reason}], verdict.String(), string(reason))
		}
	}
	t.count(descFlowsOver, f.over)
	t.count(descFlowsLost, f.lost)
	if f.total != nil {
		t.count(descPackets, *f.total)
	}
}
