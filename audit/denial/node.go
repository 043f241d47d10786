package denial

import (
	"net"
	"slices"
	"strings"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// byNode counts a packet that rules of the node denied, or its Audit policies would deny, but for what its sockets
// send in Local. remote are the pods of other nodes, and again is as of denied. The caller holds mu.
func (d *Denials) byNode(snap *policy.Snapshot, p nflog.Packet, remote []*policy.Pod, again bool) {
	n := snap.Node()
	kind, audited := strings.CutPrefix(p.Prefix, nflog.PrefixNodeAudited)
	words := strings.Fields(strings.TrimPrefix(kind, nflog.PrefixNode))
	traffic := slices.IndexFunc(traffics, func(t policy.Traffic) bool { return len(words) == 2 && t.String() == words[0] })
	if n == nil || n.Traffic == nil || traffic < 0 {
		return
	}
	t, ingress, source := traffics[traffic], words[1] == audit.Ingress, policy.CleanAddr(p.Source)
	// The rules that were asked before let it pass, whatever it had been translated from.
	flow := policy.Flow{Protocol: policy.Protocol(p.Protocol), Dialled: p.Destination, Reached: p.Destination, Source: source, In: interfaceName(p.In), Out: interfaceName(p.Out)}
	allowed, by := policy.EvaluateTraffic(n, snap, &flow, t, ingress)
	flow.Would = true
	would, wouldBy := policy.EvaluateTraffic(n, snap, &flow, t, ingress)
	add := func(verdict audit.FlowVerdict, by *policy.Rule) {
		at := key{pod: n.Pod.PodRef, dialled: p.Destination, protocol: flow.Protocol, verdict: verdict, owner: ownerOf(p)}
		f := audit.Flow{
			Time: p.Time, Last: p.Time, Pod: at.pod, Address: p.Source, Owner: at.owner, Verdict: verdict, Protocol: at.protocol, Dialled: p.Destination, Reason: audit.ReasonRule, Rule: by,
		}
		if ingress {
			f.Address = p.Destination.Addr()
		}
		if f.Leaves = t == policy.Forwarded && !ingress; ingress || f.Leaves {
			at.source, f.Source, f.SourcePod = source, source, podAt(snap, remote, source)
		}
		d.add(at, p.Time, func() audit.Flow { return f })
	}
	switch {
	case audited && allowed && !would:
		add(audit.WouldDeny, wouldBy)
	case audited: // by a policy that enforces, or by rules that are gone since
	case allowed && !again:
		d.wait(pending{Packet: p, again: func(snap *policy.Snapshot) { d.byNode(snap, p, remote, true) }})
	case allowed:
		add(audit.Denied, nil) // by rules that are gone since
	default:
		if add(audit.Denied, by); would {
			add(audit.WouldAllow, wouldBy)
		}
	}
}

// traffics are all kinds of traffic.
var traffics = []policy.Traffic{policy.Local, policy.Forwarded, policy.BeforeNAT, policy.Untracked}

// ownerOf returns the owner of the socket that sent a packet.
func ownerOf(p nflog.Packet) audit.Owner {
	if p.Owner == nil {
		return audit.Owner{}
	}
	return audit.Owner{Known: true, UID: p.Owner.UID, GID: p.Owner.GID}
}

// interfaceName returns the name of an interface, "" for none, and a name that no interface has for one that is gone.
func interfaceName(index int) string {
	if index == 0 {
		return ""
	}
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return "?"
	}
	return i.Name
}
