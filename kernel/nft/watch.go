package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch sends a token after any program changed our tables, or tables of iptables in
// nftables with chains of ours, until ctx ends; changes while a token waits are one
// token. On fakes nothing is ever sent.
func (t *Tables) Watch(ctx context.Context) (<-chan struct{}, error) {
	if t.list == nil {
		return nil, nil
	}
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, fmt.Errorf("subscribe to nftables events: %w", err)
	}
	context.AfterFunc(ctx, s.Close)
	out := make(chan struct{}, 1)
	go func() {
		for {
			msgs, _, err := s.Receive()
			// Events that did not fit may have been of ours.
			overrun := errors.Is(err, syscall.ENOBUFS)
			if err != nil && !overrun {
				return
			}
			if !overrun && !concerns(msgs) {
				continue
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

// iptablesTables are the tables of iptables in nftables that hold chains of ours.
var iptablesTables = []string{"raw", "mangle", "security"}

// concerns tells whether any of the events is about a table that holds something of ours.
// The dead-man switch, and the sets that the kernel fills, change all the time.
func concerns(msgs []syscall.NetlinkMessage) bool {
	for _, m := range msgs {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Header.Type&0xff == unix.NFT_MSG_NEWGEN {
			continue
		}
		a := nfattr.Parse(m.Data[min(nfattr.HeaderLen, len(m.Data)):])
		switch table := nfattr.String(a[unix.NFTA_TABLE_NAME]); m.Header.Type & 0xff {
		case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
			if table == TableName && !volatile(nfattr.String(a[unix.NFTA_SET_ELEM_LIST_SET])) {
				return true
			}
		default: // the attribute of the table's name has the same number in all of them
			if table == TableName || slices.Contains(iptablesTables, table) {
				return true
			}
		}
	}
	return false
}
