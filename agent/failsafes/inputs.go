package failsafes

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// Inputs are the last values of all sources.
type Inputs struct {
	Node, APIServer string // as in Options
	// Files of the host.
	Kubelet     hostfiles.Kubelet
	TimeServers []failsafe.Target
	Resolvers   hostfiles.Resolvers
	Etcd        []failsafe.Target
	// The network below the pods.
	Tunnels  underlay.Tunnels
	NextHops []underlay.NextHop
	Sessions underlay.Sessions
	// The cluster and the Corefile.
	Cluster  Cluster
	Corefile Corefile
}

// problem is a finding, and the destinations by which the Corefile settles it.
type problem struct {
	failsafe.Finding
	protocol policy.Protocol
	ports    []uint16 // any of them; none with every port of the protocol alone
}

// needs are the failsafes of Inputs.
type needs struct {
	// kept are entries that stay for a day after their source ceased to list them, current
	// those that end with their source.
	kept, current []failsafe.Entry
	names         []failsafe.Target // with a name
	problems      []problem
}

// needsOf computes the failsafes of inputs. It is pure.
func needsOf(in *Inputs) needs {
	n := needs{current: failsafe.Fixed()}
	n.apiServers(in)
	n.nodes(in)
	n.ranges(in)
	n.metadata(in)
	n.underlay(in)
	n.targets(in.TimeServers)
	n.targets(in.Resolvers.Targets)
	n.targets(in.Etcd)
	if in.Resolvers.Local {
		n.problem("/etc/resolv.conf", policy.UDP, "the host asks a resolver of its own, and the resolvers behind it are not known; write `failsafe ADDRESS:53` with their addresses in the Corefile", 53)
	}
	n.corefile(in)
	n.problems = slices.DeleteFunc(n.problems, func(p problem) bool { return p.settled(in.Corefile.Failsafes) })
	return n
}

// target adds a destination of TCP, UDP or another protocol with ports.
func (n *needs) target(t failsafe.Target) {
	if a, err := netip.ParseAddr(t.Host); err == nil {
		n.kept = append(n.kept, t.At(a))
		return
	}
	n.names = append(n.names, t)
}

func (n *needs) targets(list []failsafe.Target) {
	for _, t := range list {
		n.target(t)
	}
}

func entry(p netip.Prefix, ports policy.PortRange, reason, source string) failsafe.Entry {
	return failsafe.Entry{Failsafe: policy.Failsafe{Prefix: p, Ports: ports, Reason: reason, Source: source}}
}

func single(a netip.Addr) netip.Prefix {
	a = policy.CleanAddr(a)
	return netip.PrefixFrom(a, a.BitLen())
}

func (n *needs) problem(source string, protocol policy.Protocol, message string, ports ...uint16) {
	f := failsafe.Finding{Source: source, Message: message}
	if len(ports) > 0 {
		f.Port = ports[0]
	}
	n.problems = append(n.problems, problem{f, protocol, ports})
}

// settled tells whether an entry of the Corefile has the destinations of the problem: one of
// its ports, or every port of its protocol.
func (p *problem) settled(entries []policy.Failsafe) bool {
	return slices.ContainsFunc(entries, func(f policy.Failsafe) bool {
		if p.protocol == policy.AnyProtocol || f.Ports.Protocol != policy.AnyProtocol && f.Ports.Protocol != p.protocol {
			return false
		}
		return f.Ports.First == 0 && f.Ports.Last == 65535 ||
			slices.ContainsFunc(p.ports, func(port uint16) bool { return f.Ports.First <= port && port <= f.Ports.Last })
	})
}

// corefile adds the entries of the Corefile and the upstreams of its forwards.
func (n *needs) corefile(in *Inputs) {
	for _, f := range in.Corefile.Failsafes {
		n.current = append(n.current, failsafe.Entry{Failsafe: f})
	}
	upstream := func(to netip.AddrPort, source string) {
		for _, p := range []policy.Protocol{policy.UDP, policy.TCP} {
			n.current = append(n.current, entry(single(to.Addr()), failsafe.Port(p, to.Port()), "upstream of the agent", source))
		}
	}
	for _, to := range in.Corefile.Upstreams {
		upstream(to, "forward of the Corefile")
	}
	for ref, r := range in.Cluster.Resolvers {
		source := fmt.Sprintf("forward of the Corefile, Service %s", ref)
		for _, a := range r.ClusterIPs {
			upstream(netip.AddrPortFrom(a, 53), source)
		}
		for _, to := range r.Endpoints {
			upstream(to, source)
		}
	}
}
