package enforcer

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// home is where an address of a pod lives, nowhere where that is the zero Home, and who
// says so.
type home struct {
	link.Home
	pod  policy.PodRef
	word link.Evidence
}

func (h home) nowhere() bool { return h.Home == link.Home{} }

// trust is how far a claim to a home is believed.
type trust uint8

const (
	unfounded trust = iota
	heard           // by the bridge, now
	kept            // heard by the bridge before, or by an earlier agent
	seen            // by the kernel, now
	lasting         // seen before
)

// claim is a pod's claim to a home for one of its addresses.
type claim struct {
	addr  netip.Addr
	pod   policy.PodRef
	home  link.Home
	trust trust
	// refused: the home is another pod's, or nowhere.
	refused bool
}

// strength is the trust in a claim that is not refused.
func (c claim) strength() trust {
	if c.refused {
		return unfounded
	}
	return c.trust
}

// findHomes finds the homes of this node's pods' addresses, and forgets those of
// addresses that nobody has any more. Pods that are not selected count too: a port that
// is one pod's home is no other's. A home that the kernel has shown is kept for as long
// as its interface exists: a pod that claims its neighbour's hardware address must not
// move its neighbour's home. One that is only heard is kept until the kernel shows
// another.
func (e *Enforcer) findHomes(s *policy.Snapshot) {
	claims := e.claims(s)
	refuse(claims)
	claims = choose(claims)
	// All addresses of a pod are on one interface: where one of them is found, the others
	// are at home too. Otherwise the interface would be closed to those, and they never be
	// found.
	best := map[policy.PodRef]claim{}
	for _, c := range claims {
		if b, there := best[c.pod]; !there || c.strength() > b.strength() {
			best[c.pod] = c
		}
	}
	homes := map[netip.Addr]home{}
	for _, c := range claims {
		if b := best[c.pod]; b.strength() > c.strength() && (c.strength() == unfounded || b.trust >= seen && c.trust < seen) {
			c.home, c.trust, c.refused = b.home, b.trust, false
		}
		switch {
		case c.refused:
			homes[c.addr] = home{pod: c.pod}
		case c.trust >= seen:
			homes[c.addr] = home{c.home, c.pod, link.Seen}
		case c.trust > unfounded:
			homes[c.addr] = home{c.home, c.pod, link.Heard}
		}
	}
	e.warnRefused(homes)
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

// claims are those of all addresses of this node's pods, pod by pod.
func (e *Enforcer) claims(s *policy.Snapshot) []claim {
	stands := e.standing()
	var claims []claim
	var ask []netip.Addr
	for _, p := range s.Pods() {
		if !p.Local() || p.HostNetwork {
			continue
		}
		for _, a := range p.IPs {
			if owner, ok := s.Pod(a); !ok || owner != p.PodRef {
				continue
			}
			c := e.knownHome(a, p.PodRef, stands)
			if c.trust < lasting {
				ask = append(ask, a)
			}
			claims = append(claims, c)
		}
	}
	if len(ask) == 0 {
		return claims
	}
	found, err := e.k.Links.Homes(ask)
	if err != nil {
		e.log.Warn("cannot find where pods' addresses are at home", "error", err)
	}
	for i := range len(claims) {
		homes, ok := found[claims[i].addr]
		if c := &claims[i]; ok && c.trust < lasting {
			claims = append(claims, c.found(homes)...)
		}
	}
	return claims
}

// found adds to what is known of an address what was found, and returns further claims.
func (c *claim) found(homes []link.Found) (more []claim) {
	if len(homes) == 0 {
		c.refused = c.trust < kept
		return nil
	}
	if c.trust == kept && slices.Contains(homes, link.Found{Home: c.home, Evidence: link.Seen}) {
		c.trust = seen
		return nil
	}
	for _, h := range homes {
		t := heard
		if h.Evidence == link.Seen {
			t = seen
		}
		more = append(more, claim{addr: c.addr, pod: c.pod, home: h.Home, trust: t})
	}
	return more
}

// knownHome is what is known of an address before anybody is asked.
func (e *Enforcer) knownHome(a netip.Addr, ref policy.PodRef, stands func(link.Home) bool) claim {
	c := claim{addr: a, pod: ref}
	if h, ok := e.homes[a]; ok && h.pod == ref && !h.nowhere() && stands(h.Home) {
		if c.home, c.trust = h.Home, kept; h.word == link.Seen {
			c.trust = lasting
		}
	} else if h, ok := e.inherited.home(a, ref, stands); ok {
		c.home, c.trust = h, kept
	}
	return c
}

// refuse refuses claims to a bridge port that another pod has by a better word, and
// those of several pods by the same word.
func refuse(claims []claim) {
	owners := map[string]policy.PodRef{}
	for t := lasting; t > unfounded; t-- {
		here := map[string]policy.PodRef{}
		for _, c := range claims {
			if c.strength() != t || !c.home.Bridged() {
				continue
			}
			if other, taken := here[c.home.Port]; taken && other != c.pod {
				here[c.home.Port] = policy.PodRef{}
			} else {
				here[c.home.Port] = c.pod
			}
		}
		for port, pod := range here {
			if _, taken := owners[port]; !taken {
				owners[port] = pod
			}
		}
		for i := range claims {
			if c := &claims[i]; c.strength() == t && c.home.Bridged() {
				c.refused = owners[c.home.Port] != c.pod
			}
		}
	}
}

// choose returns one claim of each address, the strongest. Several as strong are refused.
func choose(claims []claim) []claim {
	byAddr := map[netip.Addr][]claim{}
	for _, c := range claims {
		byAddr[c.addr] = append(byAddr[c.addr], c)
	}
	out := make([]claim, 0, len(byAddr))
	for _, of := range byAddr {
		best, equal := of[0], 0
		for _, c := range of {
			if c.strength() > best.strength() {
				best, equal = c, 0
			}
			if c.strength() == best.strength() {
				equal++
			}
		}
		best.refused = best.strength() > unfounded && equal > 1 ||
			best.strength() == unfounded && slices.ContainsFunc(of, func(c claim) bool { return c.refused })
		out = append(out, best)
	}
	return out
}

// warnRefused says of which addresses nothing is accepted since the last look.
func (e *Enforcer) warnRefused(homes map[netip.Addr]home) {
	for a, h := range homes {
		if was, known := e.homes[a]; h.nowhere() && !(known && was.pod == h.pod && was.nowhere()) {
			e.log.Warn("no bridge port of its own leads to a pod's address; nothing is accepted from it until one does", "pod", h.pod, "address", a)
		}
	}
}

// astray tells whether an address of a pod is at home nowhere.
func (e *Enforcer) astray() bool {
	if !e.apply.TryLock() {
		return false
	}
	defer e.apply.Unlock()
	for _, h := range e.homes {
		if h.nowhere() {
			return true
		}
	}
	return false
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
