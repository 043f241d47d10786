package enforcer

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
func (e *Enforcer) ListGrants(pod policy.PodRef) []policy.GrantInfo {
	p := e.grants.of(pod)
	if p == nil {
		return nil
	}
	var out []policy.GrantInfo
	at := e.instant()
	for s := range p.all() {
		s.mu.RLock()
		out = slices.Grow(out, len(s.entries))
		for a, g := range s.entries {
			for i := range g.reasons {
				if r := &g.reasons[i]; r.until > at.now {
					out = append(out, s.info(a, r, at))
				}
			}
		}
		s.mu.RUnlock()
	}
	slices.SortFunc(out, compareInfo)
	return out
}

// History returns by which names an address was open to a pod, and is not any more,
// sorted as ListGrants is. A set remembers some of its last addresses.
func (e *Enforcer) History(pod policy.PodRef, addr netip.Addr) []policy.GrantInfo {
	out := e.appendAddress(nil, pod, addr, false, true)
	slices.SortFunc(out, compareInfo)
	return out
}

// NamesOf returns by which names an address is open to a pod, or was.
func (e *Enforcer) NamesOf(pod policy.PodRef, addr netip.Addr) []policy.GrantInfo {
	return e.appendAddress(nil, pod, addr, true, true)
}

// anybodyMost is how many names are enough to say whose an address is.
const anybodyMost = 128

// NamesOfAnybody is NamesOf of every pod, or of some if they are enough.
func (e *Enforcer) NamesOfAnybody(addr netip.Addr) []policy.GrantInfo {
	var out []policy.GrantInfo
	for ref := range *e.grants.pods.Load() {
		if len(out) >= anybodyMost {
			break
		}
		out = e.appendAddress(out, ref, addr, true, true)
	}
	return out
}

// appendAddress appends by which names an address is open to a pod, and was.
func (e *Enforcer) appendAddress(out []policy.GrantInfo, pod policy.PodRef, addr netip.Addr, now, past bool) []policy.GrantInfo {
	p := e.grants.of(pod)
	if p == nil {
		return out
	}
	at := e.instant()
	for s := range p.all() {
		s.mu.RLock()
		var reasons []reason
		if g := s.entries[addr]; g != nil {
			reasons = g.reasons
		}
		for i := range reasons {
			if r := &reasons[i]; now && r.until > at.now || past && r.until <= at.now {
				out = append(out, s.info(addr, r, at))
			}
		}
		old := s.past.reasons[addr]
		for i := range old {
			r := &old[i]
			again := slices.ContainsFunc(reasons, func(o reason) bool { return o.name == r.name })
			if past && !again {
				ended := *r
				ended.until = min(r.until, at.now) // it may have been taken back before
				out = append(out, s.info(addr, &ended, at))
			}
		}
		s.mu.RUnlock()
	}
	return out
}

// info renders a reason of an address.
func (s *grantSet) info(a netip.Addr, r *reason, at instant) policy.GrantInfo {
	return policy.GrantInfo{
		Pod: s.key.pod, Addr: a, Ports: s.key.ports, Name: r.name,
		Until: at.epoch.Add(time.Duration(r.until)), By: r.by.String(),
	}
}

// OnTakenBack has f told of each grant, live or ended, that is forgotten since no policy
// of its pod allows it any more: the pod may still use the address. f must not block. It
// is set before Start.
func (e *Enforcer) OnTakenBack(f func(policy.GrantInfo)) { e.takenBack = f }

// tell tells f of the reasons that are not kept.
func (s *grantSet) tell(f func(policy.GrantInfo), keep func(reason) bool, at instant) {
	if f == nil {
		return
	}
	each := func(a netip.Addr, reasons []reason) {
		for i := range reasons {
			if !keep(reasons[i]) {
				f(s.info(a, &reasons[i], at))
			}
		}
	}
	for a, g := range s.entries {
		each(a, g.reasons)
	}
	for a, reasons := range s.past.reasons {
		each(a, reasons)
	}
}

func compareInfo(a, b policy.GrantInfo) int {
	return cmp.Or(
		strings.Compare(a.Pod.Namespace, b.Pod.Namespace),
		strings.Compare(a.Pod.Name, b.Pod.Name),
		strings.Compare(a.Pod.UID, b.Pod.UID),
		strings.Compare(a.Name.String(), b.Name.String()),
		strings.Compare(string(a.Ports), string(b.Ports)),
		a.Addr.Compare(b.Addr))
}
