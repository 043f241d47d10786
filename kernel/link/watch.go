package link

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watched are the groups of rtnetlink whose events may move a home (RTNLGRP_* of
// linux/rtnetlink.h).
var watched = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// Watch implements Interface. The content of an event is not read: one token stands for
// any number of events, so a lost event in a burst does no harm.
func (k *Kernel) Watch(ctx context.Context) (<-chan struct{}, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, watched...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	context.AfterFunc(ctx, s.Close)
	return tokens(s), nil
}

// tokens sends a token for events until the socket is closed.
func tokens(s *nl.NetlinkSocket) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		for {
			if _, _, err := s.Receive(); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
}
