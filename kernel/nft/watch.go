package nft

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/subscription"
)

// Watch sends a token after any program changed our tables, or tables of iptables in
// nftables with chains of ours, until ctx ends; changes while a token waits are one
// token. After an error, which lost receives, it goes on. On fakes nothing is ever sent.
func (t *Tables) Watch(ctx context.Context, lost func(error)) (<-chan struct{}, error) {
	if !t.direct {
		return nil, nil
	}
	tokens, err := subscription.Watch(ctx, subscription.Groups(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES), concerns, lost)
	if err != nil {
		return nil, fmt.Errorf("subscribe to nftables events: %w", err)
	}
	return tokens, nil
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
			set := nfattr.String(a[unix.NFTA_SET_ELEM_LIST_SET])
			if table == TableName && (timed.IsSet(set) || !volatile(set)) || table == NetTableName {
				return true
			}
		default: // the attribute of the table's name has the same number in all of them
			if table == TableName || table == NetTableName || slices.Contains(iptablesTables, table) {
				return true
			}
		}
	}
	return false
}
