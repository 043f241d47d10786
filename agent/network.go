package agent

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"go4.org/netipx"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
)

// dnsPort is where the endpoint is served (RFC 1035 §4.2).
const dnsPort = 53

// network keeps proxy and enforcer in step with the cluster around this node:
// the resolvers' addresses, the servers behind them, and the ranges whose queries wait
// for their pod to be known. It is for one goroutine.
type network struct {
	agent  *agent
	park   bool
	ranges []netip.Prefix // as given; else the Node object's
	host   *hostDNS

	last    *intercept.Network // the network that is intercepted and served; nil after a failure
	pending bool               // last is not in force in the kernel yet
	cluster policy.Cluster     // of the last attach
	late    error              // of follow
}

// parked returns the ranges whose unknown addresses wait.
func (n *network) parked(c policy.Cluster) []netip.Prefix {
	switch {
	case !n.park:
		return nil
	case len(n.ranges) > 0:
		return n.ranges
	}
	return c.LocalRanges
}

// of returns the enforcer's Network for a cluster.
func (n *network) of(c policy.Cluster) intercept.Network {
	out := intercept.Network{PodRanges: n.parked(c)}
	for _, z := range n.agent.config.Load().Zones {
		for _, ref := range z.Services {
			r := c.Resolvers[ref]
			out.Backends = append(out.Backends, r.Endpoints...)
			if z.Name == "" { // pods ask the cluster's resolver there
				out.Resolvers = append(out.Resolvers, r.ClusterIPs...)
			}
		}
	}
	slices.SortFunc(out.Resolvers, netip.Addr.Compare)
	out.Resolvers = slices.Compact(out.Resolvers)
	slices.SortFunc(out.Backends, netip.AddrPort.Compare)
	out.Backends = slices.Compact(out.Backends)
	out.Services = n.services(c)
	n.host.addTo(&out)
	n.agent.relay.addTo(&out)
	return out
}

// services returns the addresses of Services from which a connection by name may be led on: the ones that the
// cluster assigns, and those of load balancers that `rebind allow` has. A folder of manifests knows no Services:
// the cluster's ranges stand for them.
func (n *network) services(c policy.Cluster) (out []netip.Prefix) {
	config := n.agent.config.Load()
	var b netipx.IPSetBuilder
	if n.agent.o.Cluster == nil {
		for _, p := range config.ClusterRanges {
			b.AddPrefix(p)
		}
	}
	for _, a := range c.ClusterIPs {
		b.Add(a)
	}
	for _, allow := range config.Rebind {
		if n.agent.o.Cluster == nil {
			b.AddPrefix(allow.Range)
			continue
		}
		for _, a := range c.Services {
			if allow.Range.Contains(a) {
				b.Add(a)
			}
		}
	}
	set, err := b.IPSet()
	if err != nil { // of invalid addresses, which neither has
		return nil
	}
	return set.Prefixes()
}

// attach gives the node the addresses that a changed cluster needs and serves
// on them. Interception changes with settle, or with the first Commit.
// After an error the network that is in force stays, and the next attach tries again.
func (n *network) attach(ctx context.Context, c policy.Cluster) error {
	n.cluster, n.late = c, nil
	next := n.of(c)
	if n.last != nil && reflect.DeepEqual(*n.last, next) {
		return nil
	}
	n.last, n.pending = nil, false
	serving, err := n.agent.enforce.Interception().SetNetwork(next)
	if err != nil {
		return fmt.Errorf("serve the cluster's resolvers: %w", err)
	}
	n.setHost()
	if err := n.agent.proxy.Listen(sockets(serving)); err != nil {
		return err
	}
	relays, _ := n.agent.enforce.Interception().Relays()
	n.agent.relay.listen(relays)
	n.last, n.pending = &next, true
	if n.agent.rollout.Status().InForce == nil {
		_, err = n.agent.enforce.Refresh(ctx) // for the first Commit
	}
	return err
}

// follow attaches again if the policies of a coming snapshot need other names than the last. An
// error holds up no snapshot: settle returns it.
func (n *network) follow(ctx context.Context, snap *policy.Snapshot) {
	host, relay := n.host.follow(snap), n.agent.relay.follow(snap)
	if host || relay {
		n.late = n.attach(ctx, n.cluster)
	}
}

// settle brings what attach prepared into force.
func (n *network) settle(ctx context.Context) error {
	if !n.pending {
		return n.late
	}
	serving, err := n.agent.enforce.Refresh(ctx)
	if err != nil {
		return fmt.Errorf("intercept for the cluster's resolvers: %w", err)
	}
	if err := n.agent.proxy.Listen(sockets(serving)); err != nil {
		return err
	}
	_, relays := n.agent.enforce.Interception().Relays()
	n.agent.relay.listen(relays)
	n.agent.enforce.Interception().GiveBack()
	n.pending = false
	n.host.setSettled(n.last.NodeDNS)
	n.setHost()
	return nil
}

// setHost has the proxy serve the node's own queries.
func (n *network) setHost() {
	n.agent.proxy.SetHost(n.host.host(n.agent.enforce.Interception().NodeAssigned(), n.agent.enforce.SocketMark()))
}

func sockets(addrs []netip.Addr) (out []netip.AddrPort) {
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(a, dnsPort))
	}
	return out
}
