package enforcer

import (
	"net/netip"

	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/policy"
)

// findHomes looks for the homes of selected pods' addresses that have none yet,
// and forgets those of addresses that nobody has any more. A home that is known
// is kept for as long as its interface exists: a pod that claims its neighbour's
// hardware address must not move its neighbour's home.
func (e *Enforcer) findHomes(s *policy.Snapshot) {
	homes := map[netip.Addr]link.Home{}
	if s != nil {
		for _, v := range s.Views {
			if !v.Enforced {
				continue
			}
			for _, a := range v.Pod.IPs {
				if h, ok := e.homeOf(a, v.Pod.PodRef); ok {
					homes[a] = h
				}
			}
		}
	}
	e.homes = homes
	e.warnUnseen()
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

func (e *Enforcer) homeOf(a netip.Addr, ref policy.PodRef) (link.Home, bool) {
	if h, known := e.homes[a]; known && e.ownedBy(a, ref) && e.stands(h) {
		return h, true
	}
	h, err := e.k.Links.Home(a)
	if err != nil && !link.IsUnknown(err) {
		e.log.Warn("cannot find where a pod's address is at home", "address", a, "error", err)
	}
	return h, err == nil
}

// ownedBy tells whether the plan in force already has the address for the pod.
func (e *Enforcer) ownedBy(a netip.Addr, ref policy.PodRef) bool {
	p := e.plan[ref]
	if p == nil {
		return false
	}
	_, ok := p.homes[a]
	return ok
}

func (e *Enforcer) stands(h link.Home) bool {
	iface := h.Iface
	if h.Bridged() {
		iface = h.Port
	}
	there, err := e.k.Links.Exists(iface)
	return err != nil || there
}
