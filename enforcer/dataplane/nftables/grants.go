package nftables

import (
	"context"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/nft"
)

// Named implements dataplane.Interface.
func (x *packetFilter) Named(g dataplane.GrantSet) dataplane.GrantSet { return entries.Named(g) }

// adopt makes the sets of grants that a state's rules ask and its grants do not have, and
// takes in what an earlier agent left in them. Grants on ports that no rule asks are taken in
// too, to be taken back.
func (x *packetFilter) adopt(ctx context.Context, st dataplane.State) error {
	var fresh []nft.GrantSet
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	var left []dataplane.GrantSet
	made := map[string]bool{}
	for ref, p := range st.Subjects {
		for _, ports := range p.Grants {
			for _, v6 := range []bool{false, true} {
				g := entries.Named(dataplane.GrantSet{Pod: ref, Ports: ports, IPv6: v6})
				if st.Grants.Holds(g) {
					continue
				}
				held[g] = nil
				set := ruleset.GrantSet(g)
				if x.left[set.Name] {
					left = append(left, g)
				}
				if !made[set.Name] {
					made[set.Name] = true
					fresh = append(fresh, set)
				}
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	for g := range st.Grants.Bounds() {
		if set := ruleset.GrantSet(g); !made[set.Name] { // the tables forget a set that is not added again
			made[set.Name] = true
			fresh = append(fresh, set)
		}
	}
	if err := x.tables.AddSets(ctx, nil, fresh); err != nil {
		return err
	}
	err := x.ListGrants(left, func(g dataplane.GrantSet, part []dataplane.Grant) {
		if _, missing := held[g]; missing || !st.Grants.Holds(g) {
			held[g] = append(held[g], part...)
		}
	})
	if err != nil {
		return err
	}
	st.Grants.Adopt(held)
	for name := range made {
		delete(x.left, name)
	}
	return nil
}
