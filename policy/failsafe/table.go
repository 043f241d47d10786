// Package failsafe has the table of failsafes: what leaves and what reaches a node whatever its policies
// say. The table is static: its rows are addresses that the source and the configuration of the agent
// have, with fixed ports. The enforcer writes it, the console prints it. The package is pure.
package failsafe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Always is what no rule denies beside the table: without it a node has no link or no address.
const Always = "the loopback interface; neighbor discovery, MLD, IGMP, DHCP; ICMPv6 packet too big; ICMP errors of known connections"

// Config is the directive failsafe of the Corefile.
type Config struct {
	// None: Rows replace the table.
	None bool
	// Nodes count as nodes of the cluster.
	Nodes []netip.Prefix
	// Rows are added to the table.
	Rows []policy.Failsafe
}

// has tells whether a row of the Corefile for what leaves, or what arrives, names a port: one of every protocol may be for
// anything.
func (c *Config) has(d direction, p policy.Protocol, port uint16) bool {
	return slices.ContainsFunc(c.Rows, func(f policy.Failsafe) bool {
		return (d == outward && f.Out || d == inward && f.In) && f.Ports != nil && f.HasPort(p, port)
	})
}

// Inputs are what the rows are made of.
type Inputs struct {
	Config  *Config
	Cluster *policy.Cluster
	// APIServer is HOST:PORT of the API server as the agent dials it; "" for a host that is no node
	// of a cluster.
	APIServer string
	// Pods are the addresses of this node's pods, Ranges the cluster ranges of the Corefile.
	Pods   []netip.Addr
	Ranges []netip.Prefix
	// Resolvers are those of the host, Upstreams those of the agent.
	Resolvers []netip.Addr
	Upstreams []netip.AddrPort
	// RelayPort is where agents check server names for pods, 0 for nowhere.
	RelayPort uint16
}

// Rows returns the table, and which failsafes are missing, "" for none: a node without them could be
// locked out.
func (in *Inputs) Rows() (rows []policy.Failsafe, missing string) {
	t := &table{}
	if !in.Config.None {
		missing = in.fill(t)
	}
	return append(t.rows, in.Config.Rows...), missing
}

func (in *Inputs) fill(t *table) (missing string) {
	c := in.Cluster
	servers, absent := in.apiServers()
	everywhere := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	own := slices.Concat(c.LocalRanges, singles(in.Pods...))
	t.add("SSH", inward, everywhere, port(policy.TCP, 22))
	t.add("nodes", inward|outward, slices.Concat(singles(c.Nodes...), in.Config.Nodes), nodePorts(c.APIServers.Endpoints)...)
	t.servers("API server", servers, policy.TCP)
	t.add("pods of this node", outward, slices.Clone(own))
	t.add("pods and Services", outward, slices.Concat(in.Ranges, c.PodRanges, singles(c.ClusterIPs...)))
	t.rows[len(t.rows)-1].Yields = true
	served := []policy.PortRange{port(policy.UDP, dns), port(policy.TCP, dns)}
	if in.RelayPort != 0 {
		served = append(served, port(policy.TCP, in.RelayPort))
	}
	t.add("DNS of pods", inward, own, served...)
	t.add("pods to the API server", inward, slices.Concat(in.Ranges, c.PodRanges), in.serves()...)
	var control []netip.Addr
	for _, a := range c.APIServers.Endpoints {
		control = append(control, a.Addr())
	}
	t.add("API server to the kubelet", inward, singles(control...), port(policy.TCP, kubelet))
	if inCluster := in.APIServer != ""; inCluster && len(c.Nodes)+len(in.Config.Nodes) == 0 {
		absent = append(absent, "no Node of the cluster has an address in its status; write `failsafe nodes NETWORK` with the addresses of the nodes in the Corefile")
	} else if inCluster && len(control) == 0 && !in.Config.has(inward, policy.TCP, kubelet) {
		absent = append(absent, fmt.Sprintf("the Service kubernetes has no endpoints; write `failsafe in NETWORK TCP %d` with the addresses of the API server in the Corefile", kubelet))
	}
	t.servers("resolvers", in.resolvers(), policy.UDP, policy.TCP)
	t.add("time", outward, everywhere, port(policy.UDP, 123))
	if c.Own != nil && isCloud(c.Own.ProviderID) {
		t.add("instance metadata", outward, singles(metadata...), port(policy.TCP, 80))
	}
	t.rows = slices.DeleteFunc(t.rows, func(f policy.Failsafe) bool { return len(f.Networks) == 0 })
	if len(in.Resolvers) == 0 && !in.Config.has(outward, policy.UDP, dns) {
		absent = append(absent, "the resolvers of the host are not known: /etc/resolv.conf lists none, or a resolver on the loopback interface, whose own resolvers are not known; "+
			"write `failsafe out ADDRESS UDP 53` and `failsafe out ADDRESS TCP 53` with their addresses in the Corefile")
	}
	return strings.Join(absent, "; ")
}

// serves returns the ports of the API server, if it is on this node.
func (in *Inputs) serves() (ports []policy.PortRange) {
	for _, at := range in.Cluster.APIServers.Endpoints {
		if p := port(policy.TCP, at.Port()); in.Cluster.Own != nil && slices.Contains(in.Cluster.Own.Addrs, at.Addr()) && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// table is a table that is filled.
type table struct{ rows []policy.Failsafe }

// direction is that of a row: inward, outward or both.
type direction uint8

const (
	inward direction = 1 << iota
	outward
)

// add adds a row. One that leads outward is of every protocol without ports, another is none then.
func (t *table) add(name string, d direction, networks []netip.Prefix, ports ...policy.PortRange) {
	if d&outward == 0 && len(ports) == 0 {
		return
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	t.rows = append(t.rows, policy.Failsafe{Name: name, In: d&inward != 0, Out: d&outward != 0, Networks: slices.Compact(networks), Ports: ports})
}

// servers adds a row outward for each port that servers have.
func (t *table) servers(name string, servers []netip.AddrPort, protocols ...policy.Protocol) {
	at := map[uint16][]netip.Prefix{}
	for _, s := range servers {
		at[s.Port()] = append(at[s.Port()], singles(s.Addr())...)
	}
	for _, number := range slices.Sorted(maps.Keys(at)) {
		var ports []policy.PortRange
		for _, p := range protocols {
			ports = append(ports, port(p, number))
		}
		t.add(name, outward, at[number], ports...)
	}
}

// apiServers returns the API server as the agent and its Service have it, and what is not known.
func (in *Inputs) apiServers() (servers []netip.AddrPort, absent []string) {
	servers = slices.Concat(in.Cluster.APIServers.Service, in.Cluster.APIServers.Endpoints)
	i := strings.LastIndexByte(in.APIServer, ':')
	if i < 0 {
		return servers, nil
	}
	host := strings.Trim(in.APIServer[:i], "[]")
	number, _ := strconv.ParseUint(in.APIServer[i+1:], 10, 16)
	if a, err := netip.ParseAddr(host); err == nil {
		servers = append(servers, netip.AddrPortFrom(a, uint16(number)))
	} else if !in.Config.has(outward, policy.TCP, uint16(number)) {
		absent = append(absent, fmt.Sprintf("the agent reaches the API server by the name %s, and failsafes have addresses alone; write `failsafe out ADDRESS TCP %d` with its addresses in the Corefile", host, number))
	}
	return servers, absent
}

// resolvers returns the resolvers of the host and the upstreams of the agent.
func (in *Inputs) resolvers() []netip.AddrPort {
	all := slices.Clone(in.Upstreams)
	for _, a := range in.Resolvers {
		all = append(all, netip.AddrPortFrom(a, dns))
	}
	for _, r := range in.Cluster.Resolvers {
		all = append(all, r.Endpoints...)
		for _, a := range r.ClusterIPs {
			all = append(all, netip.AddrPortFrom(a, dns))
		}
	}
	return all
}

const (
	dns = 53
	// apiServerPort is the API server's port by default (--secure-port).
	apiServerPort = 6443
	kubelet       = 10250
)

// nodePorts are the ports that nodes need of each other.
func nodePorts(apiServers []netip.AddrPort) (ports []policy.PortRange) {
	tcp := []policy.PortRange{
		port(policy.TCP, 179),                             // BGP
		{Protocol: policy.TCP, First: 2379, Last: 2380},   // etcd
		port(policy.TCP, apiServerPort),                   // API server
		port(policy.TCP, 9345), port(policy.TCP, kubelet), // RKE2's supervisor, kubelet
	}
	for _, s := range apiServers {
		tcp = append(tcp, port(policy.TCP, s.Port()))
	}
	slices.SortFunc(tcp, func(a, b policy.PortRange) int { return int(a.First) - int(b.First) })
	return append(slices.Compact(tcp),
		port(policy.UDP, 4789), port(policy.UDP, 6081), port(policy.UDP, 8472), // VXLAN, Geneve, flannel's VXLAN
		policy.PortRange{Protocol: policy.UDP, First: 51820, Last: 51821}, // WireGuard
		policy.PortRange{Protocol: policy.IPIP, Last: 65535}, policy.PortRange{Protocol: policy.ESP, Last: 65535},
	)
}

func port(p policy.Protocol, number uint16) policy.PortRange {
	return policy.PortRange{Protocol: p, First: number, Last: number}
}

func singles(addrs ...netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		a = policy.CleanAddr(a)
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// metadata are the instance metadata services of clouds: one link-local address for most, and AWS's
// over IPv6.
var metadata = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")}

// isCloud tells whether a spec.providerID is of a cloud whose kubelets and credential plugins ask the
// metadata service.
func isCloud(providerID string) bool {
	scheme, _, _ := strings.Cut(providerID, "://")
	return slices.Contains([]string{"aws", "azure", "digitalocean", "gce", "hcloud", "ibm", "linode", "oci", "openstack", "vultr"}, scheme)
}
