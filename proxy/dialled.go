package proxy

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/namegate/namegate/policy"
)

// dialled decides whether pods whose DNS no policy implies may ask the resolver that they
// dialled. It keeps the decisions of one snapshot and cluster.
type dialled struct {
	of func(local netip.Addr) netip.Addr // the resolver that pods dial to ask a local address

	mu        sync.Mutex
	snap      *policy.Snapshot
	resolvers map[policy.ServiceRef]policy.Resolver
	kept      map[dialledBy]dialledVerdict
}

// dialledBy is a query, as far as it matters.
type dialledBy struct {
	view  *policy.View
	local netip.Addr
	tcp   bool
}

type dialledVerdict struct {
	denied bool
	by     *policy.Rule // nil for a default
}

// setCluster takes over the pods behind resolvers.
func (d *dialled) setCluster(c Cluster) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resolvers, d.kept = c.Resolvers, nil
}

// denies tells whether the policies deny the client the resolver, and by which rule.
func (d *dialled) denies(c *identity, tcp bool) (bool, *policy.Rule) {
	if c.host.IsValid() || c.view.ImpliesDNS() || !c.local.IsValid() { // a failsafe has resolvers of the host
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.snap != c.snap || d.kept == nil {
		d.snap, d.kept = c.snap, map[dialledBy]dialledVerdict{}
	}
	k := dialledBy{c.view, c.local, tcp}
	v, there := d.kept[k]
	if !there {
		v = d.decide(c.view, c.snap, d.of(c.local), tcp)
		d.kept[k] = v
	}
	return v.denied, v.by
}

// DeniesResolver tells whether the policies deny a pod queries over UDP to a resolver that it
// dials, and by which rule, nil for a default.
func (s *Server) DeniesResolver(p policy.PodRef, resolver netip.Addr) (bool, *policy.Rule) {
	snap := s.snapshot.Load()
	view := snap.ViewOf(p)
	if view.ImpliesDNS() {
		return false, nil
	}
	s.dialled.mu.Lock()
	defer s.dialled.mu.Unlock()
	v := s.dialled.decide(view, snap, resolver, false)
	return v.denied, v.by
}

// decide evaluates the resolver. Behind a Service, pods are reached, of which one that is
// allowed is enough. A rule for the Service's own address accepts too, in its place.
func (d *dialled) decide(view *policy.View, snap *policy.Snapshot, resolver netip.Addr, tcp bool) dialledVerdict {
	p := policy.UDP
	if tcp {
		p = policy.TCP
	}
	at := netip.AddrPortFrom(resolver, dnsPort)
	evaluate := func(reached netip.AddrPort) dialledVerdict {
		allowed, by := policy.Evaluate(view, snap, &policy.Flow{Protocol: p, Dialled: at, Reached: reached})
		return dialledVerdict{!allowed, by}
	}
	itself := evaluate(at)
	behind := itself
	for _, pod := range d.behind(at.Addr()) {
		if behind = evaluate(pod); !behind.denied {
			return behind
		}
	}
	for r := range view.Rules.All() {
		if r == behind.by || itself.denied {
			break
		}
		if r == itself.by {
			return itself
		}
	}
	return behind
}

// behind returns the servers behind the address of a resolver.
func (d *dialled) behind(a netip.Addr) []netip.AddrPort {
	for _, r := range d.resolvers {
		if slices.Contains(r.ClusterIPs, a) {
			return r.Endpoints
		}
	}
	return nil
}
