package nftables

import (
	"context"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Verify compares grants: all else is of the tables.
func (x *packetFilter) Verify(_ context.Context, st dataplane.State, all bool) (objects []string, err error) {
	x.found = nil
	if !all {
		return nil, nil
	}
	if x.found, err = x.comparison(st.Grants).Verify(); err != nil {
		return nil, err
	}
	for _, d := range x.found {
		objects = append(objects, "nft grants "+d.Set.Name)
	}
	return slices.Compact(objects), nil
}

func (x *packetFilter) comparison(grants dataplane.Grants) *dataplane.Comparison {
	sets := func(yield func(dataplane.GrantSet) bool) {
		for g := range grants.Bounds() {
			if !yield(g) {
				return
			}
		}
	}
	list := func(each func(dataplane.GrantSet, []dataplane.Grant)) error {
		return x.ListGrants(slices.Collect(sets), each)
	}
	return &dataplane.Comparison{Sets: sets, Members: grants.Members, Freeze: grants.Freeze, List: list, Apply: x.ApplyGrants, Coexisting: x.owner.Coexisting}
}
