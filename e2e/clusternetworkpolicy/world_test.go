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
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/netpol"
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

// compiled is a world as Namegate reads it.
type compiled struct {
	*world
	cnps  []*cnp.Policy
	nps   []*netpol.Policy
	peers *policy.Snapshot // the sets alone
}

func (w *world) compile() *compiled {
	c := &compiled{world: w}
	sets := map[policy.Peer]*peers.Set{}
	var specs []*peers.Spec
	add := func(s *peers.Spec) {
		if s != nil && sets[s.Peer] == nil {
			sets[s.Peer] = peers.NewSet(s)
			specs = append(specs, s)
		}
	}
	for _, o := range w.cnps {
		p := cnp.Read(o)
		for _, r := range p.Rules {
			add(r.Spec)
		}
		c.cnps = append(c.cnps, p)
	}
	for _, o := range w.nps {
		p := netpol.Read(o)
		for _, r := range p.Rules {
			add(r.Spec)
		}
		c.nps = append(c.nps, p)
	}
	slices.SortFunc(c.cnps, func(a, b *cnp.Policy) int { return a.Place().Compare(b.Place()) })
	index, remote := peers.NewIndex(), slices.Clone(w.pods)
	for _, n := range w.nodes {
		remote = append(remote, peers.Node(n.name, n.labels, n.ips))
	}
	index.Want(specs, nil)
	index.Update(1, w.namespaces, nil, remote)
	var s policy.Snapshot
	for _, set := range sets {
		s.PeerSets = append(s.PeerSets, set.Update(index))
	}
	slices.SortFunc(s.PeerSets, func(a, b *policy.PeerSet) int { return a.Compare(b.Peer) })
	c.peers = policy.NewSnapshot(s, nil, nil)
	return c
}

// view returns the view of a pod, nil if no ClusterNetworkPolicy has rules for it.
func (c *compiled) view(p *policy.Pod) *policy.View {
	v := &policy.View{Pod: *p}
	of := func(tier policy.Tier) {
		for _, from := range c.cnps {
			if from.Tier == tier && from.Selects(c.namespaces[p.Namespace], p.Labels) {
				for _, r := range from.Rules {
					v.Rules = append(v.Rules, r.Rule)
				}
			}
		}
	}
	of(policy.Admin)
	for _, np := range c.nps {
		if np.ID[:len(p.Namespace)+1] == p.Namespace+"/" && np.Selector != nil && np.Selector.Matches(p.Labels) {
			v.NetworkPolicies = append(v.NetworkPolicies, np.ID)
			for _, r := range np.Rules {
				v.Rules = append(v.Rules, r.Rule)
			}
		}
	}
	of(policy.Baseline)
	matches, ordered := 0, false
	for _, r := range v.Rules {
		matches, ordered = matches+len(r.Matches), ordered || r.Tier != policy.Namespace
	}
	if !ordered {
		return nil
	}
	v.Index = policy.NewIndex(v.Rules, matches)
	return v
}

// allows tells whether a pod may connect, and whether any ClusterNetworkPolicy is asked.
func (c *compiled) allows(t *testing.T, f flow) (allowed, asked bool) {
	t.Helper()
	v := c.view(f.from)
	of := &policy.Flow{Protocol: f.proto, Dialled: f.dialled, Reached: f.reached}
	for _, l := range c.lookups {
		if v == nil || l.pod != f.from || !l.has(f.dialled.Addr()) {
			continue
		}
		name, err := fqdn.ParseName(l.name)
		fatal.If(t, err)
		for _, m := range v.Decide(name).Matches {
			of.Entries = append(of.Entries, m.Rule)
		}
	}
	allowed, _ = policy.Evaluate(v, c.peers, of)
	return allowed, v != nil
}
