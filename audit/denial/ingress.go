package denial

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// deniedIngress counts a connection that the kernel denied by the rules for ingress of its destination.
// remote are the pods of other nodes. The caller holds mu.
func (d *Denials) deniedIngress(snap *policy.Snapshot, p nflog.Packet, remote []*policy.Pod) {
	pod, known := snap.Pod(p.Destination.Addr())
	if !known {
		return
	}
	view, source := snap.View(p.Destination.Addr()), policy.CleanAddr(p.Source)
	at := key{pod: pod, source: source, dialled: p.Destination, protocol: policy.Protocol(p.Protocol), verdict: audit.Denied}
	d.add(at, p.Time, func() audit.Flow {
		f := audit.Flow{
			Time: p.Time, Last: p.Time, Pod: pod, Address: p.Destination.Addr(), Verdict: audit.Denied, Protocol: at.protocol,
			Dialled: p.Destination, Source: source, SourcePod: podAt(snap, remote, source), Reason: audit.ReasonIsolated,
		}
		if view == nil || view.Ingress == nil { // by rules that are gone since
			return f
		}
		if f.Workload = view.Workload; pod != pod.Orphan() {
			f.Policies = view.Ingress.NetworkPolicies
		}
		allowed, by := policy.EvaluateIngress(view, snap, &policy.Flow{Protocol: at.protocol, Dialled: p.Destination, Reached: p.Destination, Source: source})
		if !allowed && by != nil {
			f.Reason, f.Rule = audit.ReasonRule, by
		}
		return f
	})
}

// podAt returns the pod at an address, also one of another node; the zero PodRef for none.
func podAt(snap *policy.Snapshot, remote []*policy.Pod, a netip.Addr) policy.PodRef {
	ref, known := snap.Pod(a)
	if known {
		return ref
	}
	at := slices.IndexFunc(remote, func(p *policy.Pod) bool {
		return !p.HostNetwork && !p.Finished() && slices.Contains(p.IPs, a)
	})
	if at < 0 {
		return policy.PodRef{}
	}
	return remote[at].PodRef
}
