package main

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy"
)

// lookAgain is how often this node's addresses are read again.
const lookAgain = 5 * time.Second

// nodeAddresses keeps the proxy informed of what surrounds it: this node's own
// addresses as its interfaces have them, those of the other nodes, also by their
// host-network pods, and what else of the cluster the guard has to know.
type nodeAddresses struct {
	read func() ([]netip.Addr, error) // this node's
	held func(policy.Cluster) []netip.Prefix
	tell func(proxy.Cluster)
	log  *slog.Logger

	mu      sync.Mutex
	own     []netip.Addr
	around  proxy.Cluster // without own
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
		n.say()
	}
	return nil
}

// learn takes what a state says of the cluster.
func (n *nodeAddresses) learn(s state) {
	peers := slices.Clone(s.cluster.Nodes)
	for _, p := range s.input.Pods {
		if p.HostNetwork {
			peers = append(peers, p.IPs...)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	around := proxy.Cluster{
		Peers: slices.Compact(peers), Services: s.cluster.Services, Ranges: s.cluster.PodRanges,
		Resolvers: s.cluster.Resolvers, Hold: n.held(s.cluster),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !reflect.DeepEqual(around, n.around) {
		n.around = around
		n.say()
	}
}

// say tells the proxy; the caller holds mu.
func (n *nodeAddresses) say() {
	c := n.around
	c.Nodes = n.own
	n.tell(c)
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
