package underlay

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/subscription"
)

// watched are the groups of rtnetlink whose events tell of tunnels and routes. The group of
// neighbours has the forwarding databases.
var watched = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP}

// Watch implements Interface.
func (k *Kernel) Watch(ctx context.Context, lost func(error)) (<-chan struct{}, error) {
	tokens, err := subscription.Watch(ctx, subscription.Groups(unix.NETLINK_ROUTE, watched...), concerns, lost)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events of tunnels and routes: %w", err)
	}
	return tokens, nil
}

// concerns leaves out the events of neighbours and bridge ports, which are frequent: only
// entries of the forwarding databases that lead to another host count.
func concerns(events []syscall.NetlinkMessage) bool {
	return slices.ContainsFunc(events, func(e syscall.NetlinkMessage) bool {
		if e.Header.Type != unix.RTM_NEWNEIGH && e.Header.Type != unix.RTM_DELNEIGH {
			return true
		}
		_, ok := parseForwarding(e.Data)
		return ok
	})
}
