package grants

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Covered tells whether each address of each grant is acknowledged by the kernel
// for its pod, name and port set until its deadline or later, as for an answer from a
// cache. It waits for nothing and allocates nothing; grants that are being written do not
// count.
func (t *Table) Covered(grants []policy.Grant) bool {
	var p *podGrants
	for i := range grants {
		g := &grants[i]
		if i == 0 || g.Pod != grants[i-1].Pod {
			p = t.pod(g.Pod)
		}
		if p == nil {
			return false
		}
		if !p.cover(g, t.cfg.Clock.at(g.Deadline)) {
			return false
		}
	}
	return true
}

// cover is Covered for one grant: each subject has to have it.
func (p *podGrants) cover(g *policy.Grant, until monotonic) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	to := target{g.Rule, g.Ports}
	subjects := p.subjectsOf(to)
	for _, subject := range subjects {
		if !p.of[slot{to, subject}].covers(g.Addrs, subject.Is4(), g.Name, until) {
			return false
		}
	}
	return len(subjects) > 0
}

// Epoch changes as soon as a covered grant may not be covered any more: while it is the
// same as before a Covered that returned true, that result holds.
func (t *Table) Epoch() uint64 { return t.epoch.Load() }

// covers tells whether the set covers the addresses of its family.
func (s *set) covers(addrs []netip.Addr, ipv4 bool, name fqdn.Name, until monotonic) bool {
	i := 0
	for i < len(addrs) && addrs[i].Is4() != ipv4 {
		i++
	}
	if i == len(addrs) {
		return true
	}
	if s == nil || !s.mu.TryRLock() {
		return false
	}
	defer s.mu.RUnlock()
	for _, a := range addrs[i:] {
		if a.Is4() != ipv4 {
			continue
		}
		if g := s.at(a); g == nil || !g.reasons().covers(name, until) || s.uncertain[a] {
			return false
		}
	}
	return true
}
