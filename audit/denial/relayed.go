package denial

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// maxServerName bounds what of a server name is kept: as many bytes as a DNS name has.
const maxServerName = 255

// Relayed is a TCP connection that the agent denied which rules with ServerName led to it.
type Relayed struct {
	policy.Egress // the last decision about it
	Time          time.Time
	Source        netip.Addr // the pod's
	Dialled       netip.AddrPort
	// ServerName is what the client claimed, in any bytes; "" for nothing that can be read.
	ServerName string
	// Limit: the agent had no room for the connection.
	Limit bool
}

// Relayed counts a connection that the agent denied.
func (d *Denials) Relayed(r Relayed) {
	if r.Pod.Name == "" {
		return // no pod of the node
	}
	if r.Verdict == policy.AllowFlow { // the rule denies nothing
		r.By = nil
	}
	p := nflog.Packet{Time: r.Time, Source: r.Source, Destination: r.Dialled, Protocol: uint8(policy.TCP)}
	at := key{
		pod: r.Pod, dialled: r.Dialled, protocol: policy.TCP, verdict: audit.Denied, serverName: r.ServerName[:min(len(r.ServerName), maxServerName)],
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(at, r.Time, func() audit.Flow {
		f := d.flow(r.View, at, p, r.Dialled, r.By)
		f.ServerName = at.serverName
		switch {
		case r.Limit:
			f.Reason = audit.ReasonLimit
		case f.Reason == audit.ReasonUnchecked:
			f.Reason = audit.ReasonServerName
		}
		return f
	})
}
