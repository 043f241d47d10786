package kube

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/source/cni"
)

// withResults returns the pods of this node with the addresses of their sandboxes. A status
// with addresses of a later sandbox counts more than a result: another runtime may have
// made that sandbox, and left the earlier one's result. Entries
// that differ from their objects keep their pointer of before while nothing changes.
func withResults(own []*podEntry, results cni.Results, before []*podEntry) []*podEntry {
	out := slices.Clone(own)
	for i, e := range own {
		s, there := results[e.pod.UID]
		if !there || e.pod.Finished() || e.pod.HostNetwork || e.claimed >= s.Since && sameAddrs(s.Addrs, e.pod.IPs) || e.claimed > s.Since && len(e.pod.IPs) > 0 {
			continue
		}
		next := *e
		next.claimed = max(e.claimed, s.Since)
		if !sameAddrs(s.Addrs, e.pod.IPs) {
			next.pod.IPs = s.Addrs
		}
		out[i] = &next
		j, _ := slices.BinarySearchFunc(before, e, compareEntries)
		if j < len(before) && same(before[j], &next) {
			out[i] = before[j]
		}
	}
	return out
}

// sameAddrs compares addresses in any order: a plugin's order may differ from that of the
// kubelet.
func sameAddrs(a, b []netip.Addr) bool {
	if len(a) != len(b) {
		return false
	}
	for _, addr := range a {
		if !slices.Contains(b, addr) {
			return false
		}
	}
	return true
}

// compareEntries orders entries as a store does: by "namespace/name".
func compareEntries(a, b *podEntry) int {
	return strings.Compare(a.pod.Namespace+"/"+a.pod.Name, b.pod.Namespace+"/"+b.pod.Name)
}
