package metrics

import (
	"github.com/namegate/namegate/audit"
)

var (
	flowVerdicts = [...]audit.FlowVerdict{audit.Denied, audit.WouldDeny}
	flowReasons  = [...]audit.FlowReason{audit.ReasonPorts, audit.ReasonExpired, audit.ReasonBlocked, audit.ReasonUnmatched, audit.ReasonAnother, audit.ReasonAddress}
)

// denied sends each pair of verdict and reason, also one without a flow: a rate needs
// where it began.
func (e emitter) denied(f Denied) {
	type pair struct {
		verdict audit.FlowVerdict
		reason  audit.FlowReason
	}
	by := map[pair]uint64{}
	for _, of := range f.Flows {
		by[pair{of.Verdict, of.Reason}] += of.Count
	}
	for _, verdict := range flowVerdicts {
		for _, reason := range flowReasons {
			e.count(descFlows, by[pair{verdict, reason}], verdict.String(), string(reason))
		}
	}
	e.count(descFlowsOver, f.Over)
	e.count(descFlowsLost, f.Lost)
	if f.Packets != nil {
		e.count(descPackets, *f.Packets)
	}
}
