package netpol

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/peers"
)

// MaxPeerNetworks bounds the networks of one rule of a NetworkPolicy, after its ipBlocks
// are merged: an exception splits a network into up to 128.
const MaxPeerNetworks = 65536

// peers returns the peers of a rule, which its field lists. An entry that cannot work has none,
// so a rule all of whose entries are such opens nothing.
func (r *reader) peers(path, field string, list []networkingv1.NetworkPolicyPeer) *peers.Destinations {
	d := &peers.Destinations{Anywhere: len(list) == 0}
	path += "." + field
	for i := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch peer := &list[i]; {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			r.Partly(at, "ipBlock stands beside a selector, and the entry opens nothing; write two entries, one for each")
		case peer.IPBlock != nil:
			r.block(d, at+".ipBlock", peer.IPBlock)
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			r.Partly(at, "the entry names nothing and opens nothing; write a podSelector, a namespaceSelector or an ipBlock, or leave out %q for every address", field)
		default:
			r.pods(d, at, peer)
		}
	}
	if made, last := d.Normalize(MaxPeerNetworks); made > MaxPeerNetworks {
		r.Partly(path, "the ipBlocks make %d networks, and those after %v open nothing; write fewer exceptions, or several rules, each of %d networks at most",
			made, last, MaxPeerNetworks)
	}
	return d
}

// pods adds the pods of an entry, none if a selector of it cannot be read.
func (r *reader) pods(d *peers.Destinations, path string, peer *networkingv1.NetworkPolicyPeer) {
	selector := func(field string, from *metav1.LabelSelector) (*peers.Selector, bool) {
		s, err := peers.NewSelector(from)
		if err != nil {
			r.Partly(path+field, "%v; the entry opens nothing until this is fixed", err)
		}
		return s, err == nil
	}
	pods := peer.PodSelector
	if pods == nil {
		pods = &metav1.LabelSelector{}
	}
	selected, ok := selector(".podSelector", pods)
	if !ok {
		return
	}
	if peer.NamespaceSelector == nil {
		d.AddPods(r.from.Namespace, selected)
	} else if namespaces, ok := selector(".namespaceSelector", peer.NamespaceSelector); ok {
		d.AddPodsOf(namespaces, selected)
	}
}

// block adds the addresses of an ipBlock without its exceptions, none if a part of it
// cannot be read: a lost exception would open addresses that it should close.
func (r *reader) block(d *peers.Destinations, path string, b *networkingv1.IPBlock) {
	report := fields.Report(func(path, format string, args ...any) { r.Partly(path, format+"; the ipBlock opens nothing", args...) })
	whole, ok := report.Network(path+".cidr", b.CIDR)
	var holes []netip.Prefix
	for i, text := range b.Except {
		at := fmt.Sprintf("%s.except[%d]", path, i)
		hole, readable := report.Network(at, text)
		switch {
		case !readable:
			ok = false
		case !whole.IsValid():
		case hole.Bits() < whole.Bits() || !whole.Contains(hole.Addr()):
			r.Partly(at, "%s is not inside %s, and the ipBlock opens nothing; write a part of it, or take the exception out", text, b.CIDR)
			ok = false
		case hole == whole:
			r.Partly(at, "%s leaves nothing of %s; write a part of it, or take the entry out", text, b.CIDR)
			ok = false
		default:
			holes = append(holes, hole)
		}
	}
	if ok {
		d.AddNetwork(whole, holes)
	}
}
