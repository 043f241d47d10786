package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// A load balancer in pods' sockets makes their queries leave for a pod behind the
// resolver, and no packet of theirs ever bears the address that is intercepted. Such
// packets are noted, and nothing else is done about them: a pod may also ask one of
// the pods behind a resolver by itself.

const (
	// answeringSet, with the family, holds who answers behind the resolvers.
	answeringSet = "answering"
	// bypassingSet, with the family, holds the pods that asked one of these.
	bypassingSet = "bypassing"
	// bypassingFor is how long one is remembered, bypassingMost how many: more than
	// a node has pods.
	bypassingFor  = 10 * time.Minute
	bypassingMost = 4096
)

func (l layout) bypassSets(f family) {
	l.set(answeringSet+f.suffix, f.addr+" . inet_service")
	l.dynamic(bypassingSet+f.suffix, f.addr, bypassingMost, bypassingFor)
}

// bypassRule notes a packet as the pod sent it: it stands before any translation.
const bypassRule = "%[2]s saddr @intercepted%[1]s %[2]s daddr . udp dport @" + answeringSet + "%[1]s update @" + bypassingSet + "%[1]s { %[2]s saddr }"

// Bypassing returns the intercepted pods that sent DNS to who answers behind a
// resolver in the last ten minutes, sorted.
func (t *Tables) Bypassing() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, f := range families {
		var addrs []netip.Addr
		var err error
		if t.list == nil {
			addrs, err = t.printedAddrs(bypassingSet + f.suffix)
		} else {
			addrs, err = setAddrs(bypassingSet + f.suffix)
		}
		if err != nil {
			return nil, fmt.Errorf("list nft set %s%s: %w", bypassingSet, f.suffix, err)
		}
		out = append(out, addrs...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// printedAddrs is setAddrs by the interface.
func (t *Tables) printedAddrs(set string) ([]netip.Addr, error) {
	elements, err := t.inet.ListElements(context.Background(), "set", set)
	if err != nil && !knftables.IsNotFound(err) {
		return nil, err
	}
	var out []netip.Addr
	for _, e := range elements {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// setAddrs asks the kernel, which costs a thousandth of the program nft. A set that is
// not there has none.
func setAddrs(set string) ([]netip.Addr, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(TableName)))
	req.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM)
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, m := range msgs {
		if len(m) < nfattr.HeaderLen {
			continue
		}
		for _, list := range nfattr.All(m[nfattr.HeaderLen:], unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for _, element := range nfattr.All(list, unix.NFTA_LIST_ELEM) {
				key := nfattr.Parse(element)[unix.NFTA_SET_ELEM_KEY]
				if a, ok := netip.AddrFromSlice(nfattr.Parse(key)[unix.NFTA_DATA_VALUE]); ok {
					out = append(out, a)
				}
			}
		}
	}
	return out, nil
}
