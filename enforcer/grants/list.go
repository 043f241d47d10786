package grants

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy"
)

// ListGrants returns a pod's grants that have not ended, sorted by name, port set and
// address. It holds up no grant for longer than one set is copied.
func (t *Table) ListGrants(pod policy.PodRef) (out []policy.GrantInfo) {
	at := t.cfg.Clock.read()
	t.some(pod, func(s *set) bool {
		out = slices.Grow(out, len(s.entries))
		for _, g := range s.entries {
			out = s.appendInfo(out, g.address(), false, at)
		}
		return false
	})
	slices.SortFunc(out, compareInfo)
	return out
}

// NamesOf returns the grants of a pod and an address, sorted as ListGrants is: live ones, and ended ones whose
// names do not open it now. A set remembers some of its last addresses.
func (t *Table) NamesOf(pod policy.PodRef, addr netip.Addr) (out []policy.GrantInfo) {
	at := t.cfg.Clock.read()
	t.some(pod, func(s *set) bool {
		out = s.appendInfo(out, addr, true, at)
		return false
	})
	slices.SortFunc(out, compareInfo)
	return out
}

// maxListed is how many grants NamesOfAnybody needs: more pods are not searched.
const maxListed = 128

// NamesOfAnybody is NamesOf of every pod, or of some pods if they have enough.
func (t *Table) NamesOfAnybody(addr netip.Addr) []policy.GrantInfo {
	var out []policy.GrantInfo
	for ref := range t.Pods() {
		if len(out) >= maxListed {
			break
		}
		out = append(out, t.NamesOf(ref, addr)...)
	}
	return out
}

// appendInfo appends the live grants of an address, and the ended ones too.
func (s *set) appendInfo(out []policy.GrantInfo, a netip.Addr, ended bool, at reading) []policy.GrantInfo {
	var names reasons
	if g := s.at(a); g != nil {
		names = g.reasons()
	}
	for i := range names {
		if r := &names[i]; r.name != unreadable && (ended || r.until > at.now) {
			out = append(out, s.info(a, r, at))
		}
	}
	if !ended {
		return out
	}
	for _, r := range s.past[a].without(names) {
		r.until = min(r.until, at.now) // it may have been taken back before
		out = append(out, s.info(a, &r, at))
	}
	return out
}

// info renders a reason of an address.
func (s *set) info(a netip.Addr, r *reason, at reading) policy.GrantInfo {
	info := policy.GrantInfo{
		Pod: s.key.Pod, Addr: a, Ports: s.key.Ports, Rule: s.key.Rule, Name: r.name,
		Until: at.epoch.Add(time.Duration(r.until)), By: r.by.String(),
	}
	if r.held != 0 {
		info.Held = at.epoch.Add(time.Duration(r.heldAt()))
	}
	return info
}

// OnTakenBack sets a function that receives each grant, live or ended, that is forgotten
// because no policy of its pod allows it any more: the pod may still use the address. f
// must not block. It is set before the first change.
func (t *Table) OnTakenBack(f func(policy.GrantInfo)) { t.takenBack = f }

func compareInfo(a, b policy.GrantInfo) int {
	return cmp.Or(
		a.Pod.Compare(b.Pod),
		strings.Compare(a.Name.String(), b.Name.String()),
		strings.Compare(string(a.Ports), string(b.Ports)),
		strings.Compare(string(a.Rule), string(b.Rule)),
		a.Addr.Compare(b.Addr))
}
