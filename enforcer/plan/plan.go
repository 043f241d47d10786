package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// Placement is where pods' addresses live.
type Placement struct {
	Homes map[netip.Addr]Home
	// BridgesUnseen: netfilter does not see what crosses bridges.
	BridgesUnseen bool
}

// Of returns the subjects of a snapshot, none for nil.
func Of(s *policy.Snapshot, at Placement, lists Lists) dataplane.Subjects {
	out := dataplane.Subjects{}
	if s == nil {
		return out
	}
	for _, v := range s.Views {
		if v.Node != nil {
			p := &dataplane.Subject{Pod: v.Pod.PodRef, Snapshot: s, Audited: v.WouldDeny()}
			if p.Tiers = lists.nodeOf(v.Node, v.Traffic, false); p.Tiers != nil {
				p.Entries, p.Views = p.Tiers.Entries, []*policy.View{v}
				if p.Confirmed = lists.nodeOf(v.Node, v.Confirmed, false); v.Confirmed != nil && p.Confirmed == nil {
					p.Confirmed = &dataplane.Tiers{}
				}
			}
			if p.Would = NewLists().nodeOf(v.Node, v.Traffic, true); p.Would != nil && p.Tiers == nil {
				p.Tiers = &dataplane.Tiers{}
			}
			if p.Tiers != nil {
				p.Node = v.Node
			}
			if p.Tiers != nil || p.Audited {
				out[p.Pod] = p
			}
			continue
		}
		tiers := lists.tiersOf(v)
		enforced := v.InForce()
		p := &dataplane.Subject{
			Pod: v.Pod.PodRef, Addrs: v.Pod.IPs, Judged: v.Pod.IPs, Snapshot: s, Tiers: tiers,
			Isolated: enforced, Staged: enforced, Audited: v.WouldDeny(), Drop: v.Enforced && v.Denied == policy.Drop,
			Homes: map[netip.Addr]link.Home{}, BridgesUnseen: at.BridgesUnseen, Ingress: lists.ingressOf(v.Ingress),
			Intercept: enforced || v.Ordered() || len(v.Policies) > 0,
		}
		if tiers != nil {
			p.Entries = tiers.Entries
		}
		if enforced {
			p.Views, p.Grants, p.Peers = []*policy.View{v}, v.PortSets(), lists.of(v.PeerRules())
		}
		if enforced || p.Ingress != nil {
			for _, a := range p.Addrs {
				if h, ok := at.Homes[a]; ok && h.Nowhere() {
					p.Homeless = append(p.Homeless, a)
				} else if ok {
					p.Homes[a] = h.Home
				}
			}
		}
		out[p.Pod] = p
	}
	return out
}

// Union is the plan between two snapshots: every subject has the rules of both, and is
// isolated, intercepted and at home as before. An address that changes hands is judged by
// the coming subject's rules at once: the pod that had it is gone. The closed pods are
// isolated already, if they are to be.
func Union(now, next dataplane.Subjects, closed map[policy.PodRef]bool) dataplane.Subjects {
	out := dataplane.Subjects{}
	coming, held, entries := Removed(next, now), map[netip.Addr]bool{}, entryUnions{}
	for ref, p := range now {
		both := *p
		both.Judged = slices.DeleteFunc(slices.Clone(p.Addrs), func(a netip.Addr) bool {
			_, changes := coming[a]
			if changes {
				held[a] = true
			}
			return changes
		})
		if n := next[ref]; n != nil {
			both.Grants, both.Entries = union(p.Grants, n.Grants), entries.of(p.Entries, n.Entries)
			both.Views = slices.Concat(p.Views, n.Views)
			both.Peers = p.Peers.Union(n.Peers)
			both.Isolated = p.Isolated || closed[ref] && n.Isolated
			both.Staged = p.Staged || n.Staged
			if both.Ingress == nil && closed[ref] {
				both.Ingress = n.Ingress
			}
			both.Judged = append(both.Judged, slices.DeleteFunc(slices.Clone(n.Addrs), func(a netip.Addr) bool { return slices.Contains(p.Addrs, a) })...)
		}
		out[ref] = &both
	}
	for ref, n := range next {
		if now[ref] != nil {
			continue
		}
		fresh := *n
		fresh.Node = nil // its rules are made ready alone
		fresh.Isolated, fresh.Audited, fresh.Drop, fresh.Intercept = closed[ref] && n.Isolated, false, false, false
		fresh.Homes, fresh.Homeless = nil, nil
		if !closed[ref] {
			fresh.Ingress = nil
		}
		fresh.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), func(a netip.Addr) bool { return held[a] })
		out[ref] = &fresh
	}
	return out
}

// Remaining is Union without the judging that ends with the next plan, and tells whether any does.
func Remaining(now, next dataplane.Subjects, closed map[policy.PodRef]bool) (out dataplane.Subjects, ends bool) {
	for ref, p := range now {
		n := next[ref]
		isolation, ingress := p.Isolated && (n == nil || !n.Isolated), p.Ingress != nil && (n == nil || n.Ingress == nil)
		if !isolation && !ingress {
			continue
		}
		if !ends {
			out, ends = Union(now, next, closed), true
		}
		if isolation {
			out[ref].Isolated = false
		}
		if ingress {
			out[ref].Ingress = nil
		}
	}
	return out, ends
}

// union returns what either has, sorted.
func union[T cmp.Ordered](a, b []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// entryUnions are unions of the entries of subjects, which many share, by the first of each.
type entryUnions map[[2]*policy.RuleID][]policy.RuleID

func (u entryUnions) of(a, b []policy.RuleID) []policy.RuleID {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 || &a[0] == &b[0] {
		return a
	}
	key := [2]*policy.RuleID{&a[0], &b[0]}
	if u[key] == nil {
		u[key] = dataplane.UnionOf(a, b)
	}
	return u[key]
}

// Owners are the subjects by address.
func Owners(all dataplane.Subjects) map[netip.Addr]policy.PodRef {
	out := map[netip.Addr]policy.PodRef{}
	for ref, p := range all {
		for _, a := range p.Addrs {
			out[a] = ref
		}
	}
	return out
}

// Removed returns the addresses that a subject of the last plan does not have any more, with the subject: a pod
// that gets one later inherits no connection.
func Removed(last, now dataplane.Subjects) map[netip.Addr]policy.PodRef {
	out := map[netip.Addr]policy.PodRef{}
	for ref, p := range last {
		n := now[ref]
		for _, a := range p.Addrs {
			if n == nil || !slices.Contains(n.Addrs, a) {
				out[a] = ref
			}
		}
	}
	return out
}

// Known returns the addresses of this node's pods, sorted.
func Known(s *policy.Snapshot) []netip.Addr {
	var out []netip.Addr
	if s == nil {
		return out
	}
	for _, p := range s.Pods() {
		if p.Local() && !p.HostNetwork {
			out = append(out, p.IPs...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
