package clusternetworkpolicy

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	plugin "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	npa "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	npainformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/cnptest"
	"github.com/namegate/namegate/testkit/fatal"
)

// protocols are the words of the reference; ICMP is in no policy.
var protocols = map[policy.Protocol]corev1.Protocol{
	policy.TCP: corev1.ProtocolTCP, policy.UDP: corev1.ProtocolUDP, policy.SCTP: corev1.ProtocolSCTP, cnptest.ICMP: "ICMP",
}

// reference is the evaluators of kube-network-policies in their order. Their informers have
// no client: a world is put into their stores.
type reference struct {
	*networkpolicy.PolicyEngine
	cnps, nps, nodes cache.Indexer
	world            *cnptest.World
	asking           *policy.Pod // the pod whose answers the resolver knows
}

func newReference() *reference {
	core, standard := informers.NewSharedInformerFactory(nil, 0), npainformers.NewSharedInformerFactory(nil, 0)
	cnps, nps, nodes := standard.Policy().V1alpha2().ClusterNetworkPolicies(), core.Networking().V1().NetworkPolicies(), core.Core().V1().Nodes()
	r := &reference{cnps: cnps.Informer().GetIndexer(), nps: nps.Informer().GetIndexer(), nodes: nodes.Informer().GetIndexer()}
	r.PolicyEngine = networkpolicy.NewPolicyEngine(r, []api.PolicyEvaluator{
		plugin.NewClusterNetworkPolicy(npa.AdminTier, cnps, r, nodes.Lister()),
		networkpolicy.NewStandardNetworkPolicy("here", core.Core().V1().Namespaces(), core.Core().V1().Pods(), nps),
		plugin.NewClusterNetworkPolicy(npa.BaselineTier, cnps, r, nodes.Lister()),
	})
	return r
}

// take makes a world the one that is evaluated.
func (r *reference) take(t *testing.T, w *cnptest.World) {
	t.Helper()
	r.world = w
	var cnps, nps, nodes []any
	for _, o := range w.CNPs {
		var typed npa.ClusterNetworkPolicy
		fatal.If(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed))
		cnps = append(cnps, &typed)
	}
	for _, np := range w.NPs {
		nps = append(nps, np)
	}
	for _, n := range w.Nodes {
		node := &corev1.Node{}
		node.Name, node.Labels = n.Name, n.Labels
		for i, a := range n.IPs {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP}[i%2], Address: a.String()})
		}
		nodes = append(nodes, node)
	}
	fatal.If(t, r.cnps.Replace(cnps, ""))
	fatal.If(t, r.nps.Replace(nps, ""))
	fatal.If(t, r.nodes.Replace(nodes, ""))
}

// GetPodInfoByIP implements api.PodInfoProvider.
func (r *reference) GetPodInfoByIP(text string) (*api.PodInfo, bool) {
	a := policy.CleanAddr(netip.MustParseAddr(text))
	p := r.world.PodAt(a)
	if p == nil {
		return nil, false
	}
	info := &api.PodInfo{Name: p.Name, Labels: p.Labels, Namespace: &api.Namespace{Name: p.Namespace, Labels: r.world.Namespaces[p.Namespace]}}
	for _, port := range p.Ports {
		info.ContainerPorts = append(info.ContainerPorts, &api.ContainerPort{Name: port.Name, Port: int32(port.Port), Protocol: string(protocols[port.Protocol])})
	}
	return info, true
}

// ContainsIP implements api.DomainResolver: it knows what the asking pod was answered.
func (r *reference) ContainsIP(domain string, ip net.IP) bool {
	a, _ := netip.AddrFromSlice(ip)
	domain = strings.TrimSuffix(strings.ToLower(domain), ".")
	below, wild := strings.CutPrefix(domain, "*")
	for _, l := range r.world.Lookups {
		if (l.Name == domain || wild && strings.HasSuffix(l.Name, below)) && l.Pod == r.asking && l.Has(a.Unmap()) {
			return true
		}
	}
	return false
}

// allows tells whether a pod may send a packet there.
func (r *reference) allows(t *testing.T, f cnptest.Flow) bool {
	t.Helper()
	r.asking = f.From
	from := f.From.IPs[0]
	for _, a := range f.From.IPs {
		if a.Is4() == f.Reached.Addr().Is4() {
			from = a
		}
	}
	allowed, err := r.EvaluatePacket(context.Background(), &network.Packet{
		SrcIP: from.AsSlice(), DstIP: f.Reached.Addr().AsSlice(), Proto: protocols[f.Proto], SrcPort: 40000, DstPort: int(f.Reached.Port()),
	})
	fatal.If(t, err)
	return allowed
}
