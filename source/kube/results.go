package kube

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/namegate/namegate/source/cni"
)

// cniResults are the results of network plugins, on their way to Run's goroutine.
type cniResults struct {
	mu   sync.Mutex
	last cni.Results
	news bool
	// known: set was called, or no results are awaited.
	known bool
}

func (r *cniResults) set(results cni.Results) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.news, r.known = results, true, true
}

func (r *cniResults) synced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// take returns the last results, and whether they were set since the last call.
func (r *cniResults) take() (cni.Results, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.news
	r.news = false
	return r.last, news
}

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
