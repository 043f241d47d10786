package metrics

import "github.com/namegate/namegate/audit"

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
			e.count("flows_total", "Denied and would-be-denied connections that the kernel reported.", by[pair{verdict, reason}], "verdict", verdict.String(), "reason", string(reason))
		}
	}
	e.count("flows_over_total", "Connections without a flow, because there were too many different ones.", f.Over)
	e.count("flow_losses_total", "Events in which packets of denied connections were lost between the kernel and the agent.", f.Lost)
	if f.Packets != nil {
		e.count("denied_packets_total", "Packets that the verdict denied, counted by the kernel.", *f.Packets)
	}
}
