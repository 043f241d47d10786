package link

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/subscription"
)

// watched are the groups of rtnetlink whose events may move a home (RTNLGRP_* of
// linux/rtnetlink.h).
var watched = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// Watch implements Interface. The content of an event is not read: one token stands for
// any number of events, so a lost event in a burst does no harm.
func (k *Kernel) Watch(ctx context.Context, lost func(error)) (<-chan struct{}, error) {
	all := func([]syscall.NetlinkMessage) bool { return true }
	tokens, err := subscription.Watch(ctx, subscription.Groups(unix.NETLINK_ROUTE, watched...), all, lost)
	if err != nil {
		return nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	return tokens, nil
}
