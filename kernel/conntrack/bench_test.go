package conntrack_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/conntrack"
)

// BenchmarkKernelFlows finds pods' ten connections each among 100,000, of which
// every tenth is admitted: as a change asks that takes something back (admitted),
// and as one asks that selects a pod (unadmitted).
func BenchmarkKernelFlows(b *testing.B) {
	const pods, each = 10_000, 10
	for _, v6 := range []bool{false, true} {
		k := kernel(b)
		fillTable(b, v6, pods, each, func(pod int) bool { return pod%10 == 0 })
		for _, n := range []int{1, 4} {
			for word, q := range map[string]conntrack.Query{"admitted": {Mark: ours, Mask: ours}, "unadmitted": {Mask: ours}} {
				for i := range n {
					pod := 10 * i
					if q.Mark == 0 {
						pod++
					}
					q.Sources = append(q.Sources, podAddr(v6, pod))
				}
				b.Run(fmt.Sprintf("%s/pods=%d/%s", family(q.Sources[0]), n, word), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if got, err := k.Flows(q); err != nil || len(got) != n*each {
							b.Fatalf("%d connections of %d: %v", len(got), n*each, err)
						}
					}
				})
			}
		}
	}
}

func family(a netip.Addr) string {
	if a.Is6() {
		return "ipv6"
	}
	return "ipv4"
}

// BenchmarkKernelFlowsOfPeers finds the connections of 110 pods to peers that are gone,
// of which there are none, among 100,000 of which every tenth is admitted.
func BenchmarkKernelFlowsOfPeers(b *testing.B) {
	const pods, each = 10_000, 10
	for _, v6 := range []bool{false, true} {
		k := kernel(b)
		fillTable(b, v6, pods, each, func(pod int) bool { return pod%10 == 0 })
		q := conntrack.Query{Mark: ours, Mask: ours}
		for i := range 110 {
			q.Sources = append(q.Sources, podAddr(v6, 10*i))
		}
		for _, n := range []int{0, 1, 4, 5} {
			q.Peers = nil
			for i := range n {
				q.Peers = append(q.Peers, podAddr(v6, 10_001+i))
			}
			b.Run(fmt.Sprintf("%s/peers=%d", family(q.Sources[0]), n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got, err := k.Flows(q); err != nil || (len(got) == 0) != (n > 0) {
						b.Fatalf("%d connections: %v", len(got), err)
					}
				}
			})
		}
	}
}
