package clusternetworkpolicy

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// world is a cluster at one moment, as both sides are told of it.
type world struct {
	namespaces map[string]map[string]string
	pods       []*policy.Pod
	nodes      []node
	cnps       []*unstructured.Unstructured
	nps        []*networkingv1.NetworkPolicy
	lookups    []lookup
}

type node struct {
	name   string
	labels map[string]string
	ips    []netip.Addr
}

// lookup is what a pod was answered.
type lookup struct {
	pod   *policy.Pod
	name  string // in lower case, without the last dot
	addrs []netip.Addr
}

func (l lookup) has(a netip.Addr) bool { return slices.Contains(l.addrs, a) }

// flow is a connection of a pod. Only through a Service the two destinations differ.
type flow struct {
	from             *policy.Pod
	proto            policy.Protocol
	dialled, reached netip.AddrPort
}

const icmp policy.Protocol = 1

// protocols are the words of the reference; ICMP is in no policy.
var protocols = map[policy.Protocol]corev1.Protocol{
	policy.TCP: corev1.ProtocolTCP, policy.UDP: corev1.ProtocolUDP, policy.SCTP: corev1.ProtocolSCTP, icmp: "ICMP",
}

// podAt returns the pod that has an address as its own.
func (w *world) podAt(a netip.Addr) *policy.Pod {
	for _, p := range w.pods {
		if !p.HostNetwork && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

// input is the world as the compiler gets it.
func (w *world) input() compile.Input {
	in := compile.Input{Namespaces: w.namespaces, NetworkPolicies: w.nps, ClusterNetworkPolicies: w.cnps}
	for _, p := range w.pods {
		in.Pods = append(in.Pods, *p)
	}
	for _, n := range w.nodes {
		in.Remote = append(in.Remote, peers.Node(n.name, n.labels, n.ips))
	}
	return in
}

// allows tells whether a pod may connect, and whether any ClusterNetworkPolicy is asked.
func (w *world) allows(t *testing.T, s *policy.Snapshot, f flow) (allowed, asked bool) {
	t.Helper()
	v := s.ViewOf(f.from.PodRef)
	of := &policy.Flow{Protocol: f.proto, Dialled: f.dialled, Reached: f.reached}
	for _, l := range w.lookups {
		if v == nil || l.pod != f.from || !l.has(f.dialled.Addr()) {
			continue
		}
		name, err := fqdn.ParseName(l.name)
		fatal.If(t, err)
		for _, m := range v.Decide(name).Matches {
			of.Entries = append(of.Entries, m.Rule)
		}
	}
	allowed, _ = policy.Evaluate(v, s, of)
	return allowed, v != nil
}
