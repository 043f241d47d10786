package plan

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// Home is where an address of a pod lives, nowhere where that is the zero link.Home, and
// by which evidence.
type Home struct {
	link.Home
	Pod      policy.PodRef
	Evidence link.Evidence
}

// Nowhere tells whether nothing is accepted from the address.
func (h Home) Nowhere() bool { return h.Home == link.Home{} }

// Evidence is what FindHomes goes by.
type Evidence struct {
	// Last are the homes found before. Recovered returns the home that an earlier agent
	// knew for a pod's address.
	Last      map[netip.Addr]Home
	Recovered func(netip.Addr, policy.PodRef) (link.Home, bool)
	// Stands tells whether the interface of a home is there.
	Stands func(link.Home) bool
	// Ask asks the node where addresses live.
	Ask func([]netip.Addr) map[netip.Addr][]link.Found
}

// trust is how far a claim to a home is believed.
type trust uint8

const (
	unfounded trust = iota
	heard           // by the bridge, now
	kept            // learnt by the bridge before, or by an earlier agent
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

// FindHomes finds the homes of this node's pods' addresses. Unselected pods count too: a
// port that is one pod's home is no other's. A home that the kernel has shown is kept for
// as long as its interface exists: a pod that claims its neighbour's hardware address
// must not move its neighbour's home. A home that the bridge learnt is kept until the
// kernel shows another.
func FindHomes(s *policy.Snapshot, by Evidence) map[netip.Addr]Home {
	claims := by.claims(s)
	refuse(claims)
	claims = choose(claims)
	// All addresses of a pod are on one interface: if one of them is found, the others
	// are at home there too. Otherwise the interface would be closed to them, and they
	// would never be found.
	best := map[policy.PodRef]claim{}
	for _, c := range claims {
		if b, there := best[c.pod]; !there || c.strength() > b.strength() {
			best[c.pod] = c
		}
	}
	homes := map[netip.Addr]Home{}
	for _, c := range claims {
		if b := best[c.pod]; b.strength() > c.strength() && (c.strength() == unfounded || b.trust >= seen && c.trust < seen) {
			c.home, c.trust, c.refused = b.home, b.trust, false
		}
		switch {
		case c.refused:
			homes[c.addr] = Home{Pod: c.pod}
		case c.trust >= seen:
			homes[c.addr] = Home{c.home, c.pod, link.Seen}
		case c.trust > unfounded:
			homes[c.addr] = Home{c.home, c.pod, link.Heard}
		}
	}
	return homes
}

// claims are the claims of all addresses of this node's pods, pod by pod.
func (by Evidence) claims(s *policy.Snapshot) []claim {
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
			c := by.known(a, p.PodRef)
			if c.trust < lasting {
				ask = append(ask, a)
			}
			claims = append(claims, c)
		}
	}
	if len(ask) == 0 {
		return claims
	}
	found := by.Ask(ask)
	for i := range len(claims) {
		homes, ok := found[claims[i].addr]
		if c := &claims[i]; ok && c.trust < lasting {
			claims = append(claims, c.found(homes)...)
		}
	}
	return claims
}

// known is the known state of an address before the node is asked.
func (by Evidence) known(a netip.Addr, ref policy.PodRef) claim {
	c := claim{addr: a, pod: ref}
	if h, ok := by.Last[a]; ok && h.Pod == ref && !h.Nowhere() && by.Stands(h.Home) {
		if c.home, c.trust = h.Home, kept; h.Evidence == link.Seen {
			c.trust = lasting
		}
	} else if h, ok := by.Recovered(a, ref); ok {
		c.home, c.trust = h, kept
	}
	return c
}

// found adds the node's result for an address, and returns further claims.
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

// refuse refuses claims to a bridge port that another pod has by better evidence, and
// those of several pods by equal evidence.
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
