package nft

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch sends a token after a table, chain or rule was removed, ours or
// another's, or an element of one of our sets, until ctx ends; removals while a
// token waits are one token. Tables of iptables that are kept in nftables count. On
// fakes nothing is ever sent.
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
			// Events that did not fit may have been removals.
			overrun := errors.Is(err, syscall.ENOBUFS)
			if err != nil && !overrun {
				return
			}
			if !overrun && !removes(msgs) {
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

func removes(msgs []syscall.NetlinkMessage) bool {
	for _, m := range msgs {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
			continue
		}
		switch m.Header.Type & 0xff {
		case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
			return true
		case unix.NFT_MSG_DELSETELEM:
			if a := nfattr.Parse(m.Data[min(nfattr.HeaderLen, len(m.Data)):]); nfattr.String(a[unix.NFTA_SET_ELEM_LIST_TABLE]) == TableName &&
				nfattr.String(a[unix.NFTA_SET_ELEM_LIST_SET]) != aliveSet {
				return true
			}
		}
	}
	return false
}
