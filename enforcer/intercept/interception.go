package intercept

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/kernel/link"
)

// Links is the part of the node's links that is needed.
type Links interface {
	Addrs() ([]netip.Addr, error)
	AddAddr(netip.Addr) error
	DelAddr(netip.Addr) error
}

// Tables is the part of the nft tables that is needed.
type Tables interface {
	Heartbeat(context.Context) error
	Disable(context.Context) error
	Serving(context.Context) (map[netip.Addr]netip.Addr, error)
	LoopTested(ctx context.Context, rest string) ([]netip.Addr, error)
}

// Config is fixed from the start.
type Config struct {
	Links  Links
	Tables Tables
	// Resolvers are dialled by pods for DNS, with the virtual addresses of Endpoint.
	Resolvers, Endpoint []netip.Addr
	// Beaten is called after each heartbeat of KeepAlive, with its begin and its error;
	// changed: it is the first one, of several, that fails or succeeds.
	Beaten func(began time.Time, err error, changed bool)
	// Taken are addresses that another agent may use yet, beside those of the node; nil: none.
	Taken func() []netip.Addr
	Now   func() time.Time
	Log   *slog.Logger
}

// Network is the part of the cluster that interception depends on.
type Network struct {
	// Resolvers are addresses that pods dial for DNS, beside those of Config.
	Resolvers []netip.Addr
	// Backends answer behind them. Their own queries are never intercepted, and
	// they get the endpoint's while no agent is alive.
	Backends []netip.AddrPort
	// PodRanges are the ranges of this node's pods: a query to a resolver from an unknown
	// address inside is intercepted. nil: it is not.
	PodRanges []netip.Prefix
	// Services are what a connection by name may dial and be led on from, sorted: Services of the cluster, as
	// far as no tenant chooses the address.
	Services []netip.Prefix
	// NodeDNS: policies with names select the node, whose own queries may be led to the agent.
	NodeDNS bool
	// RelayPort is where the relay of connections accepts them whose TLS server name is checked, 0 while no rule
	// requires that and no such connection is open.
	RelayPort uint16
	// HostResolvers are the resolvers for which they are led, if NodeDNS: those that passed
	// TestLoop.
	HostResolvers []netip.Addr
}

// IsBackend tells whether a pod's address answers DNS behind a resolver.
func (n *Network) IsBackend(a netip.Addr) bool {
	return slices.ContainsFunc(n.Backends, func(b netip.AddrPort) bool { return b.Addr() == a })
}

// IsService tells whether an address is of Services.
func (n *Network) IsService(a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(n.Services, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && n.Services[i-1].Contains(a)
}

// Interception is the DNS interception of one agent.
type Interception struct {
	cfg Config

	mu       sync.RWMutex
	assigned map[netip.Addr]netip.Addr // dialled address to this generation's
	serving  map[netip.Addr]netip.Addr // of assigned, in force; replaced and never changed
	node     nodeServing
	relays   map[netip.Addr]netip.Addr // relayFamilies to this generation's addresses
	network  Network                   // in force
	coming   Network

	beaten atomic.Pointer[time.Time] // the last heartbeat, nil before the first
	renew  chan struct{}
	begin  func() // closes begun
	begun  chan struct{}
}

// New returns an interception that has touched nothing yet.
func New(cfg Config) *Interception {
	begun := make(chan struct{})
	return &Interception{
		cfg: cfg, assigned: map[netip.Addr]netip.Addr{}, node: newNodeServing(), relays: map[netip.Addr]netip.Addr{}, renew: make(chan struct{}, 1),
		begin: sync.OnceFunc(func() { close(begun) }), begun: begun,
	}
}

// Start removes the serving addresses of agents that are gone, and assigns one to each of
// the configured resolvers. It returns the addresses to serve on. It may be called again: an address
// that it assigned is none of an agent that is gone.
func (i *Interception) Start(abandoned []netip.Addr) ([]netip.Addr, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	own := append(i.allAssigned(), sortedValues(i.relays)...)
	i.remove(slices.DeleteFunc(slices.Clone(abandoned), func(a netip.Addr) bool { return slices.Contains(own, a) }))
	if err := i.assign(i.assigned, i.cfg.Resolvers); err != nil {
		return nil, err
	}
	i.serving = maps.Clone(i.assigned)
	return sortedValues(i.serving), nil
}

// Stop takes this generation's serving addresses away, after KeepAlive has ended. The
// virtual ones stay: pods that are pointed at them are answered by the resolver meanwhile.
func (i *Interception) Stop() {
	i.mu.RLock()
	defer i.mu.RUnlock()
	i.remove(i.allAssigned())
}

// StopRelays takes the relay's addresses away, after its last connection has ended.
func (i *Interception) StopRelays() {
	i.mu.RLock()
	defer i.mu.RUnlock()
	i.remove(sortedValues(i.relays))
}

// GiveBack takes the serving addresses away that are not in force, for other resolvers. The kernel leads
// no query to them any more, and they are not served.
func (i *Interception) GiveBack() {
	i.mu.Lock()
	defer i.mu.Unlock()
	inForce := i.allServing()
	gone := slices.DeleteFunc(i.allAssigned(), func(a netip.Addr) bool { return slices.Contains(inForce, a) })
	if i.network.RelayPort == 0 {
		gone = append(gone, sortedValues(i.relays)...)
	}
	i.remove(gone)
	of := func(_, a netip.Addr) bool { return slices.Contains(gone, a) }
	maps.DeleteFunc(i.assigned, of)
	maps.DeleteFunc(i.node.assigned, of)
	maps.DeleteFunc(i.relays, of)
	for _, a := range gone {
		delete(i.node.guarded, a)
	}
}

// remove takes serving addresses from the node.
func (i *Interception) remove(addrs []netip.Addr) {
	for _, a := range addrs {
		if err := i.cfg.Links.DelAddr(a); err != nil {
			i.cfg.Log.Warn("a serving address stays", "address", a, "error", err)
		}
	}
}

// SetNetwork takes the changed network and assigns a serving address to each resolver that
// has none. It returns all addresses to serve on; interception stays as it is until
// Activate.
func (i *Interception) SetNetwork(n Network) ([]netip.Addr, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n.PodRanges = disjoint(n.PodRanges)
	if !n.NodeDNS {
		n.HostResolvers = nil
	}
	if err := cmp.Or(i.assign(i.assigned, i.resolvers(n)), i.assign(i.node.assigned, n.HostResolvers), i.assign(i.relays, n.relayFamilies())); err != nil {
		return nil, err
	}
	i.coming = n
	return i.allAssigned(), nil
}

// Activate applies the network of the last SetNetwork. It returns the addresses that have
// to be served from then on.
func (i *Interception) Activate() []netip.Addr {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.network = i.coming
	i.serving, i.node.serving = among(i.assigned, i.resolvers(i.network)), among(i.node.assigned, i.network.HostResolvers)
	return i.allServing()
}

// allAssigned are the serving addresses for pods, and behind them those for the node. The caller holds mu.
func (i *Interception) allAssigned() []netip.Addr {
	return append(sortedValues(i.assigned), sortedValues(i.node.assigned)...)
}

// allServing are those in force.
func (i *Interception) allServing() []netip.Addr {
	return append(sortedValues(i.serving), sortedValues(i.node.serving)...)
}

// among returns the entries of assigned for resolvers.
func among(assigned map[netip.Addr]netip.Addr, resolvers []netip.Addr) map[netip.Addr]netip.Addr {
	out := map[netip.Addr]netip.Addr{}
	for _, r := range resolvers {
		if a, ok := assigned[r]; ok {
			out[r] = a
		}
	}
	return out
}

// assign gives the node an unused serving address for each resolver that has none in assigned,
// so that give back knows which one was dialled.
func (i *Interception) assign(assigned map[netip.Addr]netip.Addr, resolvers []netip.Addr) error {
	taken, err := i.cfg.Links.Addrs()
	if err != nil {
		return err
	}
	if i.cfg.Taken != nil {
		taken = slices.Concat(taken, i.cfg.Taken())
	}
	for _, r := range resolvers {
		if assigned[r].IsValid() {
			continue
		}
		a, err := freeAddr(r.Is6(), taken)
		if err != nil {
			return err
		}
		err = i.cfg.Links.AddAddr(a)
		if err == nil && slices.Contains(i.cfg.Endpoint, r) {
			err = i.cfg.Links.AddAddr(r)
		}
		if link.IsDisabled(err) {
			i.cfg.Log.Warn("a resolver is not served: IPv6 is disabled on this node", "resolver", r)
			continue
		}
		if err != nil {
			return err
		}
		taken = append(taken, a)
		assigned[r] = a
	}
	return nil
}

// resolvers returns the addresses that pods dial for DNS, the endpoint's among
// them, each once.
func (i *Interception) resolvers(n Network) []netip.Addr {
	out := slices.Clone(i.cfg.Resolvers)
	for _, r := range n.Resolvers {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// Serving returns the serving addresses in force by the addresses that pods dial. The
// caller must not change the map.
func (i *Interception) Serving() map[netip.Addr]netip.Addr {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.serving
}

// Network returns the network in force.
func (i *Interception) Network() Network {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.network
}

// Lookup tells whether an address in force is one that pods dial, or a serving address.
func (i *Interception) Lookup(a netip.Addr) (dialled, serving bool) {
	for d, s := range i.Serving() {
		dialled, serving = dialled || d == a, serving || s == a
	}
	return dialled, serving
}

// Resolver returns the address in force that pods dial where a serving address answers, or
// the address itself.
func (i *Interception) Resolver(serving netip.Addr) netip.Addr {
	for d, s := range i.Serving() {
		if s == serving {
			return d
		}
	}
	return serving
}

// Dialled returns an address of a family that pods dial for DNS and that is
// intercepted, the endpoint's only where there is no other.
func (i *Interception) Dialled(v6 bool) (found netip.Addr) {
	for r := range i.Serving() {
		if r.Is6() != v6 {
			continue
		}
		worse := slices.Contains(i.cfg.Endpoint, r)
		if !found.IsValid() || !worse && (slices.Contains(i.cfg.Endpoint, found) || r.Less(found)) {
			found = r
		}
	}
	return found
}

// Fallback returns the servers that get the endpoint's queries while no agent is alive: the
// backends, or of a family without one its first resolver that is not an endpoint
// address itself.
func (i *Interception) Fallback() []netip.AddrPort {
	n := i.Network()
	out := slices.Clone(n.Backends)
	for _, v6 := range []bool{false, true} {
		if slices.ContainsFunc(out, func(b netip.AddrPort) bool { return b.Addr().Is6() == v6 }) {
			continue
		}
		for _, r := range i.resolvers(n) {
			if r.Is6() == v6 && !slices.Contains(i.cfg.Endpoint, r) {
				out = append(out, netip.AddrPortFrom(r, 53))
				break
			}
		}
	}
	return out
}

// TakenOver tells whether the kernel leads pods' queries to another agent.
func (i *Interception) TakenOver(ctx context.Context) (bool, error) {
	now, err := i.cfg.Tables.Serving(ctx)
	if err != nil {
		return false, err
	}
	others := false
	for dialled, serving := range i.Serving() {
		switch at, ok := now[dialled]; {
		case ok && at == serving:
			return false, nil
		case ok:
			others = true
		}
	}
	return others, nil
}

func sortedValues(m map[netip.Addr]netip.Addr) []netip.Addr {
	return slices.SortedFunc(maps.Values(m), netip.Addr.Compare)
}
