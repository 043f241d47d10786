package suggest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
)

// commonName is what lines of pods say of a name, whatever their workload.
type commonName struct {
	namespaces map[string]bool // whose pods asked for it
	needs      needs           // the ports that were dialled
	opened     []policy.PortRange
	denied     bool // by the Admin tier
}

// ofNodes is what lines of nodes themselves say.
type ofNodes struct {
	names, networks allNeeds
	portless        map[string]bool // destinations of protocols without ports
	nodes           map[string]bool
	users           map[string]map[uint32]bool // that dialled a name or network
}

func (l *Log) commonName(name, namespace string) *commonName {
	n := l.common[name]
	if n == nil {
		n = &commonName{namespaces: map[string]bool{}, needs: needs{}}
		l.common[name] = n
	}
	n.namespaces[namespace] = true
	return n
}

// deniedByAdmin tells whether a rule of the Admin tier denied.
func deniedByAdmin(line audit.Line) bool {
	return line.Tier == policy.Admin.String() && line.Verdict == audit.Denied.String()
}

// commonFlow takes denied connections to names.
func (l *Log) commonFlow(line audit.Line) {
	if slices.Contains([]audit.FlowReason{audit.ReasonServerName, audit.ReasonLimit, audit.ReasonUnchecked}, line.Reason) {
		return // a rule accepts the name
	}
	dialled := dialledPort(line)
	for _, n := range line.Names {
		name, ok := canonical(n.Name)
		if !ok || n.Pod != "" || line.Reason == audit.ReasonBlocked || line.Tier == policy.Namespace.String() { // dns.encrypted denies what a namespace decided to deny
			continue
		}
		need := l.commonName(name, line.Pod.Namespace)
		switch {
		case deniedByAdmin(line):
			need.denied = true
		case dialled != anything:
			need.needs[dialled] = true
		}
	}
}

// node takes a connection of a node that was denied, or would be. No rule for what its processes dial is about others.
func (l *Log) node(line audit.Line) error {
	if line.Kind != audit.KindFlow || line.Verdict == audit.WouldAllow.String() || line.Source != nil || line.Traffic != "" && line.Traffic != policy.Local.String() {
		return nil
	}
	if line.Destination == nil {
		return errNoDestination
	}
	a, err := netip.ParseAddr(line.Destination.Address)
	if err != nil {
		return fmt.Errorf("%q is no address", line.Destination.Address)
	}
	n := &l.nodes
	if n.nodes[line.Node] = true; line.Policy != "" {
		l.existing[line.Policy] = true
	}
	to, key := n.networks, netip.PrefixFrom(a, a.BitLen()).String()
	for _, seen := range line.Names { // the newest of the node's own
		if name, ok := canonical(seen.Name); ok && seen.Pod == "" && !bare(name) {
			to, key = n.names, name
			break
		}
	}
	dialled := dialledPort(line)
	if dialled == anything {
		n.portless[line.Protocol+" to "+key] = true
		return nil
	}
	to.add(key, dialled)
	if line.Host.UID != nil {
		if n.users[key] == nil {
			n.users[key] = map[uint32]bool{}
		}
		n.users[key][*line.Host.UID] = true
	}
	return nil
}
