package enforcer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// netpol returns a NetworkPolicy that selects the pods labelled with its name. Each
// rule is ports ("any", or "tcp/80,udp/53", "tcp/http", "tcp/1-9") followed by peers:
// labels of pods of the namespace, or networks, "!" before an exception of the last one;
// without peers it is a rule for everywhere.
func netpol(name string, rules ...string) *networkingv1.NetworkPolicy {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	n.Spec.PodSelector.MatchLabels = map[string]string{name: "yes"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	for _, r := range rules {
		words := strings.Fields(r)
		rule := networkingv1.NetworkPolicyEgressRule{Ports: peerPorts(words[0])}
		for _, w := range words[1:] {
			except, isExcept := strings.CutPrefix(w, "!")
			switch {
			case isExcept:
				last := rule.To[len(rule.To)-1].IPBlock
				last.Except = append(last.Except, except)
			case strings.Contains(w, "/"):
				rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: w}})
			default:
				rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{w: "yes"}}})
			}
		}
		n.Spec.Egress = append(n.Spec.Egress, rule)
	}
	return n
}

func peerPorts(s string) []networkingv1.NetworkPolicyPort {
	if s == "any" {
		return nil
	}
	var out []networkingv1.NetworkPolicyPort
	for part := range strings.SplitSeq(s, ",") {
		proto, port, _ := strings.Cut(part, "/")
		protocol := corev1.Protocol(strings.ToUpper(proto))
		p := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		if first, last, isRange := strings.Cut(port, "-"); port != "" {
			value := intstr.Parse(first)
			p.Port = &value
			if n, err := strconv.Atoi(last); isRange && err == nil {
				end := int32(n)
				p.EndPort = &end
			}
		}
		out = append(out, p)
	}
	return out
}

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
