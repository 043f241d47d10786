package kube

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
)

// claims is when the addresses of pods that are ending were last claimed by any pod.
type claims map[netip.Addr]int64

// claimsOf returns the claims of pods, nil where no pod that may yield is ending. The
// pods among others may not yield, and count all the same.
func claimsOf(mayYield, others []*podEntry) claims {
	var last claims
	for _, e := range mayYield {
		if !e.ending || e.pod.HostNetwork {
			continue
		}
		if last == nil {
			last = claims{}
		}
		for _, a := range e.pod.IPs {
			last[a] = e.claimed
		}
	}
	if last == nil {
		return nil
	}
	for _, list := range [][]*podEntry{mayYield, others} {
		for _, e := range list {
			if e.pod.HostNetwork {
				continue
			}
			for _, a := range e.pod.IPs {
				if at, ends := last[a]; ends {
					last[a] = max(at, e.claimed)
				}
			}
		}
	}
	return last
}

// lost tells whether a pod must yield an address.
func (c claims) lost(e *podEntry) bool {
	return e.ending && !e.pod.HostNetwork && slices.ContainsFunc(e.pod.IPs, func(a netip.Addr) bool { return e.claimed < c[a] })
}

// without returns the pod without the addresses that it must yield. A network plugin
// reassigns an address only after it released it, and a terminating pod's object may
// still have the address. The compiler handles all other conflicts.
func (c claims) without(e *podEntry) policy.Pod {
	p := e.pod
	if c.lost(e) {
		p.IPs = slices.DeleteFunc(slices.Clone(p.IPs), func(a netip.Addr) bool { return e.claimed < c[a] })
	}
	return p
}

// localPods returns the pods of this node and their problems. If several pods claim one
// address, a terminating pod yields to a pod that got it later.
func localPods(entries []*podEntry) (pods []policy.Pod, problems []policy.Problem) {
	last := claimsOf(entries, nil)
	for _, e := range entries {
		pods = append(pods, last.without(e))
		problems = append(problems, e.problems...)
	}
	return pods, problems
}

// remotePods returns the pods of other nodes. A terminating one yields to pods of this
// node too; pods of this node never yield to it, so that other nodes cannot affect them.
// Pods that lost addresses are kept in yielded, so that their pointers stay while they
// lose the same addresses.
func remotePods(far, near []*podEntry, yielded map[*podEntry]*policy.Pod) []*policy.Pod {
	last := claimsOf(far, near)
	pods := make([]*policy.Pod, len(far))
	before := maps.Clone(yielded)
	clear(yielded)
	for i, e := range far {
		pods[i] = &e.pod
		if !last.lost(e) {
			continue
		}
		p := last.without(e)
		pods[i] = before[e]
		if pods[i] == nil || !slices.Equal(pods[i].IPs, p.IPs) {
			pods[i] = &p
		}
		yielded[e] = pods[i]
	}
	return pods
}
