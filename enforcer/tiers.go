package enforcer

import (
	"net/netip"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// haveTiers tells whether a subject has ordered rules.
func haveTiers(subjects dataplane.Subjects) bool {
	for _, p := range subjects {
		if p.Tiers != nil {
			return true
		}
	}
	return false
}

// addrsWithTiers returns the addresses of subjects with ordered rules.
func addrsWithTiers(subjects dataplane.Subjects) (out []netip.Addr) {
	for _, p := range subjects {
		if p.Tiers != nil {
			out = append(out, p.Addrs...)
		}
	}
	return out
}
