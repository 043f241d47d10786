package denial

import (
	"net"
	"strings"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// deniedByNode counts a packet that rules of the node denied, but for those of Local for what its sockets send. remote
// are the pods of other nodes. The caller holds mu.
func (d *Denials) deniedByNode(snap *policy.Snapshot, p nflog.Packet, remote []*policy.Pod) {
	n := snap.Node()
	words := strings.Fields(strings.TrimPrefix(p.Prefix, nflog.PrefixNode))
	if n == nil || n.Traffic == nil || len(words) != 2 {
		return
	}
	at := key{pod: n.Pod.PodRef, dialled: p.Destination, protocol: policy.Protocol(p.Protocol), verdict: audit.Denied, owner: ownerOf(p)}
	f := audit.Flow{
		Time: p.Time, Last: p.Time, Pod: at.pod, Address: p.Source, Owner: at.owner, Verdict: audit.Denied, Protocol: at.protocol, Dialled: p.Destination, Reason: audit.ReasonRule,
	}
	if words[1] == audit.Ingress {
		at.source = policy.CleanAddr(p.Source)
		f.Address, f.Source = p.Destination.Addr(), at.source
		f.SourcePod = podAt(snap, remote, f.Source)
	}
	d.add(at, p.Time, func() audit.Flow {
		// The rules that were asked before let it pass, whatever it had been translated from.
		v := *n
		v.Traffic = &policy.TrafficRules{}
		for t := range policy.Untracked + 1 {
			switch is := n.Traffic.Of(t); {
			case t.String() != words[0]:
			case words[1] == audit.Ingress:
				v.Traffic.Of(t).Ingress = is.Ingress
			default:
				v.Traffic.Of(t).Egress = is.Egress
			}
		}
		flow := policy.Flow{Protocol: at.protocol, Dialled: p.Destination, Reached: p.Destination, Source: policy.CleanAddr(p.Source), In: interfaceName(p.In), Out: interfaceName(p.Out)}
		if allowed, by := policy.EvaluateNode(&v, snap, &flow); !allowed {
			f.Rule = by // else of rules that are gone since
		}
		return f
	})
}

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
