package enforcer

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// findHomes finds the homes of this node's pods' addresses, and removes the homes of
// addresses that no pod has any more.
func (e *Enforcer) findHomes(s *policy.Snapshot) {
	e.next = nil
	stands, shared := e.standing(), map[netip.Addr]string{}
	homes := plan.FindHomes(s, plan.Evidence{
		Last: e.homes, Stands: stands,
		Recovered: func(a netip.Addr, ref policy.PodRef) (link.Home, bool) { return e.recovered.home(a, ref, stands) },
		Ask: func(addrs []netip.Addr) map[netip.Addr][]link.Found {
			found, others, err := e.k.Links.Homes(addrs)
			if err != nil {
				e.log.Warn("cannot find where pods' addresses are at home", "error", err)
			}
			shared = others
			return found
		},
	})
	e.warnRefused(homes)
	e.homes = homes
	e.noteHomes(s)
	e.findSwitched(s, shared)
	bridged := slices.ContainsFunc(slices.Collect(maps.Values(homes)), func(h plan.Home) bool { return h.Bridged() })
	e.warnUnseen(bridged)
	e.findGateways(bridged)
}

// findSwitched notes the pods behind a switch that is no bridge of the kernel, of addresses with the interfaces
// that others share, and says which are new there.
func (e *Enforcer) findSwitched(s *policy.Snapshot, shared map[netip.Addr]string) {
	maps.DeleteFunc(shared, func(a netip.Addr, _ string) bool {
		_, home := e.homes[a]
		return home || s.View(a) == nil
	})
	for a, iface := range shared {
		if e.switched[a] != iface {
			ref, _ := s.Pod(a)
			e.log.Error("a switch that netfilter does not see connects the pod: nothing is enforced between pods and Services inside it", "pod", ref, "address", a, "interface", iface)
		}
	}
	e.switched = shared
}

// findGateways looks for the node's link-local addresses, where pods are on bridges.
func (e *Enforcer) findGateways(bridged bool) {
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

// errUnseen says what to do where netfilter misses what crosses bridges.
var errUnseen = errors.New("netfilter does not see what crosses the bridge of pods: nothing is denied between these pods; load br_netfilter and set " +
	"net.bridge.bridge-nf-call-iptables=1 and net.bridge.bridge-nf-call-ip6tables=1")

// warnUnseen says when netfilter begins or ends to miss what crosses a bridge, which deviates from EnforceNetworkPolicies.
// What netfilter sees is judged all the same: else another program that changes a parameter of the kernel would
// open every pod.
func (e *Enforcer) warnUnseen(bridged bool) {
	filtered, err := e.k.Links.BridgesFiltered()
	unseen := bridged && err == nil && !filtered
	if unseen && !e.unseen {
		e.log.Error("policies do not hold between pods of one bridge", "error", errUnseen)
	}
	e.unseen = unseen
	var refused []string
	if unseen && e.cfg.EnforceNetworkPolicies {
		refused = []string{"networkPolicy.enforce All"}
	}
	e.drift.report(fromBridges, e.now(), errUnseen, refused...)
}

// warnRefused says of which addresses nothing is accepted since the last look.
func (e *Enforcer) warnRefused(homes map[netip.Addr]plan.Home) {
	for a, h := range homes {
		if was, known := e.homes[a]; h.Nowhere() && !(known && was.Pod == h.Pod && was.Nowhere()) {
			e.log.Warn("no bridge port of its own leads to a pod's address; nothing is accepted from it until one does", "pod", h.Pod, "address", a)
		}
	}
}

// astray tells whether an address of a pod is at home nowhere.
func (e *Enforcer) astray() bool {
	if !e.apply.TryLock() {
		return false
	}
	defer e.apply.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(e.homes)), plan.Home.Nowhere)
}
