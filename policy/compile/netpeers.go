package compile

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// MaxPeerNetworks bounds the networks of one rule of a NetworkPolicy, when those of its
// ipBlocks are as few as they can be: an exception takes a network apart into up to 128.
const MaxPeerNetworks = 65536

// destinations returns where a rule leads. An entry that cannot work leads nowhere,
// so a rule all of whose entries are such opens nothing.
func (n *netPolicy) destinations(path string, to []networkingv1.NetworkPolicyPeer) destinations {
	if len(to) == 0 {
		return destinations{anywhere: true}
	}
	var d destinations
	var spans []span
	for i := range to {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch peer := &to[i]; {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			n.partly(at, "ipBlock stands beside a selector, and the entry leads nowhere; write two entries, one for each")
		case peer.IPBlock != nil:
			spans = append(spans, n.block(at+".ipBlock", peer.IPBlock)...)
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			n.partly(at, "the entry names nothing and leads nowhere; write a podSelector, a namespaceSelector or an ipBlock, or leave out \"to\" for every destination")
		default:
			if t, ok := n.term(at, peer); ok {
				d.terms = append(d.terms, t)
			}
		}
	}
	d.settle()
	d.networks = joined(spans)
	if d.count = count(d.networks); d.count > MaxPeerNetworks {
		made := d.count
		d.networks, d.count = first(d.networks, MaxPeerNetworks), MaxPeerNetworks
		last := d.networks[len(d.networks)-1].prefixes(nil)
		n.partly(path, "the ipBlocks make %d networks, and those after %v open nothing; write fewer exceptions, or several rules, each of %d networks at most",
			made, last[len(last)-1], MaxPeerNetworks)
	}
	return d
}

func (n *netPolicy) term(path string, peer *networkingv1.NetworkPolicyPeer) (podTerm, bool) {
	pods, spaces := &selector{text: "*"}, (*selector)(nil)
	var err error
	if peer.PodSelector != nil {
		if pods, err = newSelector(peer.PodSelector); err != nil {
			n.partly(path+".podSelector", "%v; the entry leads nowhere until this is mended", err)
			return podTerm{}, false
		}
	}
	if peer.NamespaceSelector == nil {
		return newPodTerm(n.from.Namespace, nil, pods), true
	}
	if spaces, err = newSelector(peer.NamespaceSelector); err != nil {
		n.partly(path+".namespaceSelector", "%v; the entry leads nowhere until this is mended", err)
		return podTerm{}, false
	}
	return newPodTerm("", spaces, pods), true
}

// block returns the addresses of an ipBlock without its exceptions, none if a part
// of it cannot be read: an exception that is lost would open what it was to close.
func (n *netPolicy) block(path string, b *networkingv1.IPBlock) []span {
	whole, ok := n.cidr(path+".cidr", b.CIDR)
	var holes []span
	for i, text := range b.Except {
		at := fmt.Sprintf("%s.except[%d]", path, i)
		hole, readable := n.cidr(at, text)
		switch {
		case !readable:
			ok = false
		case !whole.IsValid():
		case hole.Bits() < whole.Bits() || !whole.Contains(hole.Addr()):
			n.partly(at, "%s is not inside %s, and the ipBlock opens nothing; write a part of it, or take the exception out", text, b.CIDR)
			ok = false
		case hole == whole:
			n.partly(at, "%s leaves nothing of %s; write a part of it, or take the entry out", text, b.CIDR)
			ok = false
		default:
			holes = append(holes, spanOf(hole))
		}
	}
	if !ok {
		return nil
	}
	return spanOf(whole).without(holes)
}

// cidr reads a network. Bits below its length mean nothing.
func (n *netPolicy) cidr(path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		n.partly(path, "%q is no network, and the ipBlock opens nothing; write an address and its length: 192.0.2.0/24, 2001:db8::/32", text)
	case p.Addr().Is4In6():
		n.partly(path, "%q is an IPv4 network written as IPv6, and the ipBlock opens nothing; write the IPv4 network", text)
	default:
		return p.Masked(), true
	}
	return netip.Prefix{}, false
}
