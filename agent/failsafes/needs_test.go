package failsafes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

func addrs(text string) (out []netip.Addr) {
	for _, a := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func ranges(text string) (out []netip.Prefix) {
	for _, p := range strings.Fields(text) {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func ends(text string) (out []netip.AddrPort) {
	for _, a := range strings.Fields(text) {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func ofCorefile(protocol policy.Protocol, first, last uint16) Corefile {
	return Corefile{Failsafes: []policy.Failsafe{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Ports: policy.PortRange{Protocol: protocol, First: first, Last: last}, Reason: "failsafe of the Corefile", Source: "Corefile:3"}}}
}

// texts returns what inputs need beside Fixed: entries, "?" names and "!" problems.
func texts(in *Inputs) (out []string) {
	n := needsOf(in)
	fixed := failsafe.Fixed()
	for _, e := range append(n.kept, n.current...) {
		if !slices.Contains(fixed, e) {
			out = append(out, strings.TrimPrefix(e.String(), "failsafe "))
		}
	}
	for _, t := range n.names {
		out = append(out, fmt.Sprintf("? %s %s/%d: %s (%s)", t.Host, t.Ports.Protocol, t.Ports.First, t.Reason, t.Source))
	}
	for _, p := range n.problems {
		out = append(out, fmt.Sprintf("! %d %s", p.Port, p.String()))
	}
	slices.Sort(out)
	return out
}

func TestNeeds(t *testing.T) {
	worker := &policy.Host{Name: "n1", Addrs: addrs("192.0.2.1"), KubeletPort: 10250}
	control := &policy.Host{Name: "n1", Addrs: addrs("192.0.2.1"), KubeletPort: 10250, ControlPlane: true}
	hosts := func(list ...*policy.Host) Cluster { return Cluster{Cluster: policy.Cluster{Hosts: list}} }
	cloud := func(id string) Cluster { return hosts(&policy.Host{Name: "n1", ProviderID: id}) }
	served := func(c Cluster, endpoints string) Cluster {
		c.APIServers = policy.APIServers{Service: ends("10.96.0.1:443"), Endpoints: ends(endpoints)}
		return c
	}
	const local = "! 6443 /etc/kubernetes/kubelet.conf: the kubelet reaches the API server through a load balancer on the node, and the addresses behind it are not known; " +
		"write `failsafe ADDRESS:PORT` with the API servers' addresses in the Corefile"
	const vxlan = "! 8472 tunnel cilium_vxlan: a program chooses the peers of the tunnel (vxlan) packet by packet; write `failsafe CIDR:8472/udp` with the peers' range in the Corefile"
	const gre = "! 0 tunnel gre0: a program chooses the peers of the tunnel (gre) packet by packet; write `failsafe CIDR` with the peers' range in the Corefile"
	const bgp = "! 179 TCP sockets of the node: a program waits for sessions of BGP, and none is established; write `failsafe CIDR:179/tcp` with the peers in the Corefile"
	const resolver = "! 53 /etc/resolv.conf: the host asks a resolver of its own, and the resolvers behind it are not known; write `failsafe ADDRESS:53` with their addresses in the Corefile"
	unknown := underlay.Tunnels{Unknown: []underlay.Unknown{{Device: "cilium_vxlan", Kind: "vxlan", Protocol: 17, Port: 8472}}}
	greUnknown := underlay.Tunnels{Unknown: []underlay.Unknown{{Device: "gre0", Kind: "gre", Protocol: 47}}}
	strange := underlay.Tunnels{Unknown: []underlay.Unknown{{Device: "gre0", Kind: "gre"}}}
	for _, c := range []struct {
		name string
		in   Inputs
		want []string
	}{
		{"nothing", Inputs{}, nil},
		{"the agent's API server", Inputs{APIServer: "192.0.2.10:6443"}, []string{"TCP 192.0.2.10:6443: API server (API server of the agent)"}},
		{"the agent's API server, IPv6", Inputs{APIServer: "[2001:db8::10]:443"}, []string{"TCP [2001:db8::10]:443: API server (API server of the agent)"}},
		{"the agent's API server by name", Inputs{APIServer: "api.test:6443"}, []string{"? api.test tcp/6443: API server (API server of the agent)"}},
		{"the Service kubernetes", Inputs{Cluster: served(Cluster{}, "192.0.2.10:6443")}, []string{
			"TCP 10.96.0.1:443: API server (Service kubernetes)", "TCP 192.0.2.10:6443: API server (EndpointSlices of the Service kubernetes)"}},
		{"a load balancer on the node", Inputs{Node: "n1", Cluster: hosts(worker), Kubelet: hostfiles.Kubelet{Local: "/etc/kubernetes/kubelet.conf"}}, []string{local}},
		{"of an unknown node", Inputs{Node: "n1", Kubelet: hostfiles.Kubelet{Local: "/etc/kubernetes/kubelet.conf"}}, []string{local}},
		{"the API server on the node", Inputs{Node: "n1", Cluster: hosts(control), Kubelet: hostfiles.Kubelet{Local: "/etc/kubernetes/kubelet.conf"}}, nil},
		{"settled by the port of the endpoints", Inputs{Node: "n1", Cluster: served(hosts(worker), "192.0.2.10:7443"), Kubelet: hostfiles.Kubelet{Local: "/etc/kubernetes/kubelet.conf"}, Corefile: ofCorefile(policy.TCP, 7443, 7443)},
			[]string{"TCP 10.96.0.1:443: API server (Service kubernetes)", "TCP 192.0.2.0/24:7443: failsafe of the Corefile (Corefile:3)", "TCP 192.0.2.10:7443: API server (EndpointSlices of the Service kubernetes)"}},
		{"kubelets", Inputs{Node: "n1", Cluster: hosts(worker, &policy.Host{Name: "n2", Addrs: addrs("192.0.2.2 2001:db8::2"), KubeletPort: 10255, ControlPlane: true})}, []string{
			"TCP 192.0.2.2:10255: kubelet (Node n2)", "TCP [2001:db8::2]:10255: kubelet (Node n2)"}},
		{"the control plane", Inputs{Node: "n1", Cluster: served(hosts(control, &policy.Host{Name: "n2", Addrs: addrs("192.0.2.2"), KubeletPort: 10250, ControlPlane: true}), "192.0.2.2:6443"),
			Etcd: []failsafe.Target{{Host: "192.0.2.30", Ports: failsafe.Port(policy.TCP, 2379), Reason: "etcd", Source: "manifest"}}}, []string{
			"TCP 10.96.0.1:443: API server (Service kubernetes)",
			"TCP 192.0.2.2:10250: kubelet (Node n2)", "TCP 192.0.2.2:2379-2380: etcd (Node n2)", "TCP 192.0.2.2:6443: API server (EndpointSlices of the Service kubernetes)",
			"TCP 192.0.2.2:6443: API server (Node n2)", "TCP 192.0.2.30:2379: etcd (manifest)"}},
		{"pods", Inputs{Node: "n1", Cluster: Cluster{Pods: addrs("10.244.1.7 10.9.0.1"), Cluster: policy.Cluster{
			LocalRanges: ranges("10.244.1.0/24"), PodRanges: ranges("10.244.1.0/24 10.244.2.0/24 fd00::/64"), ClusterIPs: addrs("10.96.0.10 10.200.0.1")}},
			Corefile: Corefile{Ranges: ranges("10.96.0.0/12 fd00::/48")}}, []string{
			"every protocol 10.200.0.1: pods and Services (Services) [unless a policy names it]",
			"every protocol 10.244.1.0/24: pods of this node (Node n1)",
			"every protocol 10.244.2.0/24: pods and Services (Node objects) [unless a policy names it]",
			"every protocol 10.9.0.1: pods of this node (pods)",
			"every protocol 10.96.0.0/12: pods and Services (cluster of the Corefile) [unless a policy names it]",
			"every protocol fd00::/48: pods and Services (cluster of the Corefile) [unless a policy names it]"}},
		{"a cloud", Inputs{Node: "n1", Cluster: cloud("gce://project/zone/n1")}, []string{"TCP 169.254.169.254:80: instance metadata (providerID of the Node n1)"}},
		{"AWS", Inputs{Node: "n1", Cluster: cloud("aws:///eu-central-1a/i-1")}, []string{
			"TCP 169.254.169.254:80: instance metadata (providerID of the Node n1)", "TCP [fd00:ec2::254]:80: instance metadata (providerID of the Node n1)"}},
		{"no cloud", Inputs{Node: "n1", Cluster: cloud("kind://docker/kind/n1")}, nil},
		{"credential plugins", Inputs{Node: "n1", Kubelet: hostfiles.Kubelet{CredentialProvider: true}}, []string{
			"TCP 169.254.169.254:80: instance metadata (--image-credential-provider-config of the kubelet)"}},
		{"tunnels", Inputs{Tunnels: underlay.Tunnels{Peers: []underlay.Peer{
			{Addr: addrs("198.51.100.2")[0], Protocol: 17, Port: 8472, Source: "forwarding database of flannel.1"}, {Addr: addrs("2001:db8::2")[0], Protocol: 47, Source: "tunnel gre0"}}}}, []string{
			"GRE 2001:db8::2: tunnel peer (tunnel gre0)", "UDP 198.51.100.2:8472: tunnel peer (forwarding database of flannel.1)"}},
		{"an unknown tunnel", Inputs{Tunnels: unknown}, []string{vxlan}},
		{"settled", Inputs{Tunnels: unknown, Corefile: ofCorefile(policy.UDP, 8000, 9000)}, []string{"UDP 192.0.2.0/24:8000-9000: failsafe of the Corefile (Corefile:3)"}},
		{"settled by every protocol", Inputs{Tunnels: unknown, Corefile: ofCorefile(policy.AnyProtocol, 0, 65535)}, []string{"every protocol 192.0.2.0/24: failsafe of the Corefile (Corefile:3)"}},
		{"not by another port", Inputs{Tunnels: unknown, Corefile: ofCorefile(policy.UDP, 8473, 9000)}, []string{vxlan, "UDP 192.0.2.0/24:8473-9000: failsafe of the Corefile (Corefile:3)"}},
		{"not by another protocol", Inputs{Tunnels: unknown, Corefile: ofCorefile(policy.TCP, 8472, 8472)}, []string{vxlan, "TCP 192.0.2.0/24:8472: failsafe of the Corefile (Corefile:3)"}},
		{"an unknown tunnel without ports", Inputs{Tunnels: greUnknown, Corefile: ofCorefile(policy.UDP, 47, 47)}, []string{gre, "UDP 192.0.2.0/24:47: failsafe of the Corefile (Corefile:3)"}},
		{"settled by every protocol", Inputs{Tunnels: greUnknown, Corefile: ofCorefile(policy.AnyProtocol, 0, 65535)}, []string{"every protocol 192.0.2.0/24: failsafe of the Corefile (Corefile:3)"}},
		{"a tunnel of an unknown kind", Inputs{Tunnels: strange}, []string{gre}},
		{"settled by every protocol", Inputs{Tunnels: strange, Corefile: ofCorefile(policy.AnyProtocol, 0, 65535)}, []string{"every protocol 192.0.2.0/24: failsafe of the Corefile (Corefile:3)"}},
		{"next hops", Inputs{NextHops: []underlay.NextHop{{Addr: addrs("192.0.2.254")[0], Device: "eth0"}, {Addr: addrs("fe80::1")[0]}}}, []string{
			"ICMP 192.0.2.254: next hop (routes through eth0)", "ICMPv6 fe80::1: next hop (routing tables)",
			"UDP 192.0.2.254:3784-3785: next hop (routes through eth0)", "UDP 192.0.2.254:4784: next hop (routes through eth0)",
			"UDP [fe80::1]:3784-3785: next hop (routing tables)", "UDP [fe80::1]:4784: next hop (routing tables)"}},
		{"sessions", Inputs{Sessions: underlay.Sessions{Listens: true, Peers: addrs("192.0.2.254")}}, []string{"TCP 192.0.2.254:179: BGP session (TCP sockets of the node)"}},
		{"a program that waits for sessions", Inputs{Sessions: underlay.Sessions{Listens: true}}, []string{bgp}},
		{"its peers in the Corefile", Inputs{Sessions: underlay.Sessions{Listens: true}, Corefile: ofCorefile(policy.TCP, 179, 179)}, []string{"TCP 192.0.2.0/24:179: failsafe of the Corefile (Corefile:3)"}},
		{"a local resolver", Inputs{Resolvers: hostfiles.Resolvers{Local: true}}, []string{resolver}},
		{"with its servers in the Corefile", Inputs{Resolvers: hostfiles.Resolvers{Local: true}, Corefile: ofCorefile(policy.UDP, 53, 53)}, []string{"UDP 192.0.2.0/24:53: failsafe of the Corefile (Corefile:3)"}},
		{"time and resolvers", Inputs{TimeServers: []failsafe.Target{{Host: "pool.test", Ports: failsafe.Port(policy.UDP, 123), Reason: "time", Source: "/etc/chrony.conf"}},
			Resolvers: hostfiles.Resolvers{Targets: []failsafe.Target{{Host: "192.0.2.53", Ports: failsafe.Port(policy.TCP, 853), Reason: "resolver of the host", Source: "/etc/resolv.conf"}}}}, []string{
			"? pool.test udp/123: time (/etc/chrony.conf)", "TCP 192.0.2.53:853: resolver of the host (/etc/resolv.conf)"}},
		{"upstreams", Inputs{Corefile: Corefile{Upstreams: ends("192.0.2.53:5353")}, Cluster: Cluster{Cluster: policy.Cluster{Resolvers: map[policy.ServiceRef]policy.Resolver{
			{Namespace: "kube-system", Name: "kube-dns"}: {ClusterIPs: addrs("10.96.0.10"), Endpoints: ends("10.244.2.9:1053")}}}}}, []string{
			"TCP 10.244.2.9:1053: upstream of the agent (forward of the Corefile, Service kube-dns.kube-system)", "TCP 10.96.0.10:53: upstream of the agent (forward of the Corefile, Service kube-dns.kube-system)",
			"TCP 192.0.2.53:5353: upstream of the agent (forward of the Corefile)",
			"UDP 10.244.2.9:1053: upstream of the agent (forward of the Corefile, Service kube-dns.kube-system)", "UDP 10.96.0.10:53: upstream of the agent (forward of the Corefile, Service kube-dns.kube-system)",
			"UDP 192.0.2.53:5353: upstream of the agent (forward of the Corefile)"}},
	} {
		slices.Sort(c.want)
		if got := texts(&c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}
