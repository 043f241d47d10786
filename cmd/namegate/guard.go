package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

// lookAgain is how often this node's addresses are read again.
const lookAgain = 5 * time.Second

// nodeAddresses keeps the proxy's guard informed of the nodes' addresses: this
// node's own as its interfaces have them, and those of host-network pods, which
// are their nodes'.
type nodeAddresses struct {
	read func() ([]netip.Addr, error) // this node's
	tell func(proxy.Cluster)
	log  *slog.Logger

	mu      sync.Mutex
	own     []netip.Addr
	peers   []netip.Addr
	failing bool
}

// look reads this node's addresses and tells of a change.
func (n *nodeAddresses) look() error {
	own, err := n.read()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		return err
	}
	slices.SortFunc(own, netip.Addr.Compare)
	if !slices.Equal(own, n.own) {
		n.own = own
		n.tell(proxy.Cluster{Nodes: own, Peers: n.peers})
	}
	return nil
}

// learn takes the addresses of host-network pods from the source's pods.
func (n *nodeAddresses) learn(pods []policy.Pod) {
	var peers []netip.Addr
	for _, p := range pods {
		if p.HostNetwork {
			peers = append(peers, p.IPs...)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	peers = slices.Compact(peers)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(peers, n.peers) {
		n.peers = peers
		n.tell(proxy.Cluster{Nodes: n.own, Peers: peers})
	}
}

// run looks at each tick. What was known stays while the kernel cannot be asked.
func (n *nodeAddresses) run(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		err := n.look()
		if err != nil && !n.failing {
			n.log.Warn("the guard goes by the addresses that this node had before", "error", err)
		}
		n.failing = err != nil
	}
}
