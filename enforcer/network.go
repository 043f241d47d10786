package enforcer

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/link"
)

// Network is what the enforcer knows of the cluster beyond its snapshot.
type Network struct {
	// Resolvers are dialled by pods for DNS, beside those of Config.
	Resolvers []netip.Addr
	// Backends answer behind them. Their own queries are never intercepted, and
	// they get the endpoint's while no agent is alive.
	Backends []netip.AddrPort
	// PodRanges are those of this node's pods: a query to a resolver from an
	// address inside that is no known pod's is intercepted. nil: it is not.
	PodRanges []netip.Prefix
}

// SetNetwork takes what changed around the node and raises a serving address for
// each resolver that has none. It returns all addresses to serve on; nothing is
// intercepted differently before Refresh.
func (e *Enforcer) SetNetwork(_ context.Context, n Network) ([]netip.Addr, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	n.PodRanges = disjoint(n.PodRanges)
	if err := e.raise(e.resolvers(n)); err != nil {
		return nil, err
	}
	e.comingNetwork = n
	return sortedValues(e.raised), nil
}

// Refresh brings the network into force that SetNetwork was told of last, and
// returns the addresses that have to be served from now on. Before the first Commit it
// writes nothing: that Commit brings the whole into force at once, since an agent before
// this one may be intercepting all.
func (e *Enforcer) Refresh(ctx context.Context) ([]netip.Addr, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	e.network = e.comingNetwork
	e.serving = map[netip.Addr]netip.Addr{}
	for _, r := range e.resolvers(e.network) {
		if a, ok := e.raised[r]; ok {
			e.serving[r] = a
		}
	}
	if e.snapshot != nil {
		if err := e.plane.Isolate(e.state(e.inForce())); err != nil {
			return nil, err
		}
		if err := e.k.Tables.Apply(ctx, e.tablesState(e.inForce())); err != nil {
			return nil, err
		}
	}
	return sortedValues(e.serving), nil
}

// resolvers returns the addresses that pods dial for DNS, the endpoint's among
// them, each once.
func (e *Enforcer) resolvers(n Network) []netip.Addr {
	out := slices.Clone(e.cfg.Resolvers)
	for _, r := range n.Resolvers {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// raise gives the node an unused serving address for each resolver that has none,
// so that give back knows which one a pod dialled.
func (e *Enforcer) raise(resolvers []netip.Addr) error {
	taken, err := e.k.Links.Addrs()
	if err != nil {
		return err
	}
	for _, r := range resolvers {
		if e.raised[r].IsValid() {
			continue
		}
		a, err := freeAddr(r.Is6(), taken)
		if err != nil {
			return err
		}
		err = e.k.Links.AddAddr(a)
		if err == nil && slices.Contains(e.cfg.Endpoint, r) {
			err = e.k.Links.AddAddr(r)
		}
		if link.IsDisabled(err) {
			e.log.Warn("a resolver is not served: IPv6 is disabled on this node", "resolver", r)
			continue
		}
		if err != nil {
			return err
		}
		taken = append(taken, a)
		e.raised[r] = a
	}
	return nil
}

// isBackend tells whether a pod's address answers DNS behind a resolver.
func (e *Enforcer) isBackend(a netip.Addr) bool {
	return slices.ContainsFunc(e.network.Backends, func(b netip.AddrPort) bool { return b.Addr() == a })
}

// fallback returns who gets the endpoint's queries while no agent is alive: the
// backends, or of a family without one its first resolver that is not an endpoint
// address itself.
func (e *Enforcer) fallback() []netip.AddrPort {
	out := slices.Clone(e.network.Backends)
	for _, v6 := range []bool{false, true} {
		if slices.ContainsFunc(out, func(b netip.AddrPort) bool { return b.Addr().Is6() == v6 }) {
			continue
		}
		for _, r := range e.resolvers(e.network) {
			if r.Is6() == v6 && !slices.Contains(e.cfg.Endpoint, r) {
				out = append(out, netip.AddrPortFrom(r, 53))
				break
			}
		}
	}
	return out
}

// disjoint returns the prefixes that no other one contains, masked and sorted.
func disjoint(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	for i := range all {
		all[i] = all[i].Masked()
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range all {
		if len(out) == 0 || !out[len(out)-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

func sortedValues(m map[netip.Addr]netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
