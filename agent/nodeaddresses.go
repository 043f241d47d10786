package agent

import (
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

// nodeAddressesPeriod is how often this node's addresses are read.
const nodeAddressesPeriod = 5 * time.Second

// nodeAddresses keeps the proxy's Cluster up to date: the addresses of this node's
// interfaces, of the other nodes and of their host-network pods, and the other addresses
// that the guard protects.
type nodeAddresses struct {
	read   func() ([]netip.Addr, error) // this node's
	parked func(policy.Cluster) []netip.Prefix
	set    func(proxy.Cluster)
	log    *slog.Logger

	mu      sync.Mutex
	now     proxy.Cluster // what was set last
	failing bool
}

// refresh reads this node's addresses and passes a change on.
func (n *nodeAddresses) refresh() error {
	own, err := n.read()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		return err
	}
	slices.SortFunc(own, netip.Addr.Compare)
	if !slices.Equal(own, n.now.Nodes) {
		n.now.Nodes = own
		n.set(n.now)
	}
	return nil
}

// learn takes over the cluster of a state.
func (n *nodeAddresses) learn(s rollout.State) {
	peers := slices.Clone(s.Cluster.Nodes)
	for _, p := range s.Input.Pods {
		if p.HostNetwork {
			peers = append(peers, p.IPs...)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	around := proxy.Cluster{
		Peers: slices.Compact(peers), Services: s.Cluster.Services, Ranges: s.Cluster.PodRanges,
		Resolvers: s.Cluster.Resolvers, Hold: n.parked(s.Cluster),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if around.Nodes = n.now.Nodes; !reflect.DeepEqual(around, n.now) {
		n.now = around
		n.set(around)
	}
}

// cluster returns the proxy's Cluster.
func (n *nodeAddresses) cluster() proxy.Cluster {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// poll refreshes. The last known addresses stay while the kernel cannot be asked.
func (n *nodeAddresses) poll() {
	err := n.refresh()
	if err != nil && !n.failing {
		n.log.Warn("cannot read this node's addresses; the rebinding guard uses the previous ones", "error", err)
	}
	n.failing = err != nil
}
