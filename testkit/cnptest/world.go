// Package cnptest has what tests of ClusterNetworkPolicies share: random clusters, and the
// connections that Namegate judges differently from the standard's reference implementation.
package cnptest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/fatal"
)

// World is a cluster at one moment, as both sides are told of it.
type World struct {
	Namespaces map[string]map[string]string
	Pods       []*policy.Pod
	Nodes      []Node
	CNPs       []*unstructured.Unstructured
	NPs        []*networkingv1.NetworkPolicy
	Lookups    []Lookup
}

// Node is a Node of the cluster.
type Node struct {
	Name   string
	Labels map[string]string
	IPs    []netip.Addr
}

// Lookup is what a pod was answered.
type Lookup struct {
	Pod   *policy.Pod
	Name  string // in lower case, without the last dot
	Addrs []netip.Addr
}

// Has tells whether an address is in the answer.
func (l Lookup) Has(a netip.Addr) bool { return slices.Contains(l.Addrs, a) }

// Flow is a connection of a pod. Only through a Service the two destinations differ.
type Flow struct {
	From             *policy.Pod
	Proto            policy.Protocol
	Dialled, Reached netip.AddrPort
}

// ICMP is in no policy.
const ICMP policy.Protocol = 1

// PodAt returns the pod that has an address as its own.
func (w *World) PodAt(a netip.Addr) *policy.Pod {
	for _, p := range w.Pods {
		if !p.HostNetwork && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

// Input is the world as the compiler gets it.
func (w *World) Input() compile.Input {
	in := compile.Input{Namespaces: w.Namespaces, NetworkPolicies: w.NPs, ClusterNetworkPolicies: w.CNPs}
	for _, p := range w.Pods {
		in.Pods = append(in.Pods, *p)
	}
	for _, n := range w.Nodes {
		in.Remote = append(in.Remote, peers.Node(n.Name, n.Labels, n.IPs))
	}
	return in
}

// Allows tells whether a pod may connect, and whether any ClusterNetworkPolicy is asked.
func (w *World) Allows(t testing.TB, s *policy.Snapshot, f Flow) (allowed, asked bool) {
	t.Helper()
	v := s.ViewOf(f.From.PodRef)
	of := &policy.Flow{Protocol: f.Proto, Dialled: f.Dialled, Reached: f.Reached, ByName: true} // Services have cluster IPs alone
	for _, l := range w.Lookups {
		if v == nil || l.Pod != f.From || !l.Has(f.Dialled.Addr()) {
			continue
		}
		name, err := fqdn.ParseName(l.Name)
		fatal.If(t, err)
		for _, m := range v.Decide(name).Matches {
			of.Entries = append(of.Entries, m.Rule)
		}
	}
	allowed, _ = policy.Evaluate(v, s, of)
	return allowed, v != nil
}

// Show writes the cluster.
func (w *World) Show(t testing.TB) string {
	return w.describe(t, func(v any) ([]byte, error) { return yaml.Marshal(v) })
}

func (w *World) describe(t testing.TB, marshal func(any) ([]byte, error)) string {
	var b strings.Builder
	for _, p := range w.Pods {
		fmt.Fprintf(&b, "pod %s/%s %v %v %v host %v\n", p.Namespace, p.Name, p.Labels, p.IPs, p.Ports, p.HostNetwork)
	}
	fmt.Fprintln(&b, w.Namespaces, w.Nodes)
	for _, l := range w.Lookups {
		fmt.Fprintln(&b, l.Pod.Name, "asked", l.Name, l.Addrs)
	}
	for _, o := range w.CNPs {
		text, err := marshal(o.Object)
		fatal.If(t, err)
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	for _, o := range w.NPs {
		text, err := marshal(o)
		fatal.If(t, err)
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.String()
}
