package nft

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// A load balancer in pods' sockets makes their queries leave for a pod behind the
// resolver, and no packet of theirs ever bears the address that is intercepted. Such
// packets are noted, and nothing else is done about them: a pod may also ask one of
// the pods behind a resolver by itself.

const (
	// answeringSet, with the family, has the addresses that answer behind the resolvers.
	answeringSet = "answering"
	// bypassingSet, with the family, holds the pods that asked one of these.
	bypassingSet = "bypassing"
	// bypassingFor is how long one is remembered, maxBypassing how many: more than
	// a node has pods.
	bypassingFor = 10 * time.Minute
	maxBypassing = 4096
)

func (l layout) bypassSets(f family) {
	l.set(answeringSet+f.suffix, f.addr+" . inet_service")
	l.dynamic(bypassingSet+f.suffix, f.addr, maxBypassing, bypassingFor)
}

// bypassRule notes a packet as the pod sent it, before any translation.
const bypassRule = "%[2]s daddr . th dport @" + answeringSet + "%[1]s %[2]s saddr @intercepted%[1]s update @" + bypassingSet + "%[1]s { %[2]s saddr }"

// Bypassing returns the intercepted pods that sent DNS queries to an address behind a
// resolver in the last ten minutes, sorted.
func (t *Tables) Bypassing() ([]netip.Addr, error) {
	out, err := t.addrs(context.Background(), bypassingSet)
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}
