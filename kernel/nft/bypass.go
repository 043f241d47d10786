package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

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
	var out []netip.Addr
	err := eachElement(unix.NFPROTO_INET, set, func(attrs map[int][]byte) {
		if a, ok := netip.AddrFromSlice(elementData(attrs, unix.NFTA_SET_ELEM_KEY)); ok {
			out = append(out, a)
		}
	})
	return out, err
}
