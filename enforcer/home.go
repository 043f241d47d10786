package enforcer

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/policy"
)

// home is a home and the pod that it was found for.
type home struct {
	link.Home
	pod policy.PodRef
}

// findHomes looks for the homes of this node's pods' addresses that have none
// yet, and forgets those of addresses that nobody has any more. Pods that are not
// selected count too: one that hides its address later is known by then. A home
// that is known is kept for as long as its interface exists: a pod that claims its
// neighbour's hardware address must not move its neighbour's home. All addresses of a
// pod are on one interface: where one of them is found, the others are at home too.
// Otherwise the interface would be closed to those, and they never be found.
func (e *Enforcer) findHomes(s *policy.Snapshot) {
	homes, stands := map[netip.Addr]home{}, e.standing()
	for _, p := range s.Pods() {
		if !p.Local() || p.HostNetwork {
			continue
		}
		var unknown []netip.Addr
		var found *link.Home
		for _, a := range p.IPs {
			if owner, ok := s.Pod(a); !ok || owner != p.PodRef {
				continue
			}
			h, ok := e.homeOf(a, p.PodRef, stands)
			if !ok {
				unknown = append(unknown, a)
				continue
			}
			homes[a] = home{h, p.PodRef}
			if found == nil {
				found = &h
			}
		}
		for _, a := range unknown {
			if found != nil {
				homes[a] = home{*found, p.PodRef}
			}
		}
	}
	e.homes = homes
	e.warnUnseen()
	e.findGateways()
}

// findGateways looks for the node's link-local addresses, where pods are on bridges.
func (e *Enforcer) findGateways() {
	bridged := false
	for _, h := range e.homes {
		bridged = bridged || h.Bridged()
	}
	if !bridged {
		e.gateways = nil
		return
	}
	all, err := e.k.Links.Addrs()
	if err != nil {
		e.log.Warn("cannot find the node's link-local addresses; those known stay", "error", err)
		return
	}
	e.gateways = slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.Is6() || !a.IsLinkLocalUnicast() })
	slices.SortFunc(e.gateways, netip.Addr.Compare)
	e.gateways = slices.Compact(e.gateways)
}

// warnUnseen says when netfilter begins or ends to miss what crosses a bridge.
func (e *Enforcer) warnUnseen() {
	bridged := false
	for _, h := range e.homes {
		bridged = bridged || h.Bridged()
	}
	filtered, err := e.k.Links.BridgesFiltered()
	unseen := bridged && err == nil && !filtered
	if unseen && !e.unseen {
		e.log.Error("netfilter does not see what crosses bridges: policies are not enforced between pods of one bridge; load br_netfilter and set " +
			"net.bridge.bridge-nf-call-iptables=1 and net.bridge.bridge-nf-call-ip6tables=1")
	}
	e.unseen = unseen
}

func (e *Enforcer) homeOf(a netip.Addr, ref policy.PodRef, stands func(link.Home) bool) (link.Home, bool) {
	if known, ok := e.homes[a]; ok && known.pod == ref && stands(known.Home) {
		return known.Home, true
	}
	if h, ok := e.inherited.home(a, ref, stands); ok {
		return h, true
	}
	h, err := e.k.Links.Home(a)
	if err != nil && !link.IsUnknown(err) {
		e.log.Warn("cannot find where a pod's address is at home", "address", a, "error", err)
	}
	return h, err == nil
}

// standing returns whether a home's interface is there. Where that cannot be told, it is.
func (e *Enforcer) standing() func(link.Home) bool {
	names, err := e.k.Links.Names()
	if err != nil {
		e.log.Warn("cannot find which interfaces there are; homes stay as they are known", "error", err)
	}
	return func(h link.Home) bool {
		if h.Bridged() {
			return err != nil || names[h.Port]
		}
		return err != nil || names[h.Iface]
	}
}
