package enforcer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// far returns a pod of another node with labels.
func far(name, ips string, labels ...string) *policy.Pod {
	p := pod(name, ips, labels...)
	p.NodeName = "other"
	return &p
}

// reaches tells whether a new connection gets through, and leaves nothing behind.
func (w *world) reaches(from, to string, proto policy.Protocol) bool {
	dst := addrPort(to)
	return w.passes(&packet{Src: addr(from), Dst: dst.Addr(), Protocol: uint8(proto), DstPort: dst.Port()})
}

// asksPeers is a node with one selected pod, client, that a NetworkPolicy lets reach
// databases on one port, a network but for a part of it, and web servers by the name
// of their port.
func asksPeers(t testing.TB) (*world, policy.Pod) {
	w := newWorld(t)
	client := pod("client", "10.1.0.5 2001:db8:1::5", "allow", "np")
	w.netpols = []*networkingv1.NetworkPolicy{netpol("np", "tcp/5432 db", "udp/1-9 198.51.100.0/24 !198.51.100.128/25 2001:db8:7::/48", "tcp/http web")}
	web1, web2 := far("web1", "10.2.0.3 2001:db8:2::3", "web"), far("web2", "10.2.0.4", "web")
	web1.Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 8080}}
	web2.Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}, {Name: "http", Protocol: policy.UDP, Port: 99}}
	w.remote = []*policy.Pod{far("db1", "10.2.0.1 2001:db8:2::1", "db"), far("db2", "10.2.0.2", "db"), web1, web2}
	w.apply([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
	return w, client
}

// peerSets are the sets of peers of rule lists that the nft tables have, each with its members, sorted. A set of
// networks may have those of several peers, and another name then.
func (w *world) peerSets() map[string][]string {
	out := map[string][]string{}
	for name, set := range w.inet.Table.Sets {
		if !strings.HasPrefix(name, "peers-list-") && !strings.HasPrefix(name, "peers-of-") {
			continue
		}
		members := []string{}
		for _, e := range set.Elements {
			members = append(members, strings.Join(e.Key, " "))
		}
		slices.Sort(members)
		out[name] = members
	}
	return out
}

// peerSetName is the name of the set of a peer.
func peerSetName(p policy.Peer, f iptables.Family) string {
	return fmt.Sprintf("peers-%s-%d", dataplane.ListPeersName(p), f)
}
