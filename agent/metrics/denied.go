package metrics

import (
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/denial"
	"github.com/namegate/namegate/policy"
)

var (
	flowVerdicts = [...]audit.FlowVerdict{audit.Denied, audit.WouldDeny, audit.WouldAllow}
	flowReasons  = [...]audit.FlowReason{audit.ReasonRule, audit.ReasonPorts, audit.ReasonTranslated, audit.ReasonExpired, audit.ReasonBlocked, audit.ReasonUnmatched, audit.ReasonAnother, audit.ReasonAddress}
)

// denied sends each verdict, reason and tier, also those without a flow: a rate needs
// where it began.
func (e emitter) denied(f Denied) {
	by := map[denial.Total]uint64{}
	for _, of := range f.Flows {
		count := of.Count
		of.Count = 0
		by[of] += count
	}
	for _, verdict := range flowVerdicts {
		for _, reason := range flowReasons {
			for _, tier := range tiersOf(reason) {
				e.count("flows_total", "Connections that the kernel reported: denied, or with another verdict if Audit policies were enforced.",
					by[denial.Total{Verdict: verdict, Reason: reason, Tier: tier}], "verdict", verdict.String(), "reason", string(reason), "tier", tier.String())
			}
		}
	}
	e.count("flows_over_total", "Connections without a flow, because there were too many different ones.", f.Over)
	e.count("flow_losses_total", "Events in which packets of denied connections were lost between the kernel and the agent.", f.Lost)
	if f.Packets != nil {
		e.count("denied_packets_total", "Packets that the verdict denied, counted by the kernel.", *f.Packets)
	}
}

// tiersOf returns the tiers whose denials have a reason.
func tiersOf(r audit.FlowReason) []policy.Tier {
	if r == audit.ReasonRule {
		return []policy.Tier{policy.Admin, policy.Namespace, policy.Baseline}
	}
	return []policy.Tier{policy.Namespace}
}
