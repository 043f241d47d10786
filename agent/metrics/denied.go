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
			e.count("flows_total", "Connections that were denied, or would be, that the kernel handed over.", by[pair{verdict, reason}], "verdict", verdict.String(), "reason", string(reason))
		}
	}
	e.count("flows_over_total", "Connections that were counted in no flow, since there were too many to tell apart.", f.Over)
	e.count("flow_losses_total", "How often packets of denied connections were lost on their way from the kernel.", f.Lost)
	if f.Packets != nil {
		e.count("denied_packets_total", "Packets that the verdict denied, counted by the kernel.", *f.Packets)
	}
}
