package enforcer

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Covered tells whether each address of each grant is acknowledged by the kernel
// for its pod, name and port set until its deadline or later, as it is when an
// answer comes from a cache. It waits for nothing and allocates nothing; what is
// being written at the moment does not count.
func (e *Enforcer) Covered(grants []policy.Grant) bool {
	var p *podGrants
	for i := range grants {
		g := &grants[i]
		if i == 0 || g.Pod != grants[i-1].Pod {
			p = e.grants.of(g.Pod)
		}
		if p == nil {
			return false
		}
		sets, until := (*p.sets.Load())[g.Ports], e.moment(g.Deadline)
		for v, s := range sets {
			if !s.covers(g.Addrs, v == 0, g.Name, until) {
				return false
			}
		}
	}
	return true
}

// Epoch is another number as soon as something that was covered may not be any
// more: while it is the same as before a Covered that said true, that still holds.
func (e *Enforcer) Epoch() uint64 { return e.grants.epoch.Load() }

// covers tells whether it covers those of the addresses that are of its family.
func (s *grantSet) covers(addrs []netip.Addr, ipv4 bool, name fqdn.Name, until moment) bool {
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
		if g := s.entries[a]; g == nil || !g.covers(name, until) || s.doubt[a] {
			return false
		}
	}
	return true
}
