package nftables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// slack is by how much the timeout of a grant may differ from the wanted one.
const slack = 5 * time.Second

// deviation is a grant that is not as wanted: missing, changed or foreign.
type deviation struct {
	set  dataplane.GrantSet
	addr netip.Addr
}

func (d deviation) compare(o deviation) int {
	return cmp.Or(strings.Compare(d.set.Name, o.set.Name), strings.Compare(string(d.set.Ports), string(o.set.Ports)), d.addr.Compare(o.addr))
}

// Verify compares grants: all else is of the tables. The same deviation has to show twice, as
// grants change between two readings.
func (x *packetFilter) Verify(_ context.Context, st dataplane.State, all bool) (objects []string, err error) {
	x.found = nil
	if !all {
		return nil, nil
	}
	first, err := x.deviations(st.Grants)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := x.deviations(st.Grants)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(second, func(d deviation, _ bool) bool { return !first[d] })
	x.found = slices.SortedFunc(maps.Keys(second), deviation.compare)
	for _, d := range x.found {
		objects = append(objects, "nft grants "+d.set.Name)
	}
	return slices.Compact(objects), nil
}

func (x *packetFilter) deviations(grants dataplane.Grants) (map[deviation]bool, error) {
	byName := map[string]dataplane.GrantSet{}
	for g := range grants.Bounds() {
		byName[kernelName(g)] = g
	}
	is := map[dataplane.GrantSet]map[netip.Addr]dataplane.Grant{}
	err := x.listGrants(byName, func(g dataplane.GrantSet, part []dataplane.Grant) {
		of := map[netip.Addr]dataplane.Grant{}
		for _, grant := range part {
			of[grant.Addr] = grant
		}
		is[g] = of
	})
	if err != nil {
		return nil, err
	}
	out, coexisting := map[deviation]bool{}, x.owner.Coexisting()
	for g := range grants.Bounds() {
		freeze(grants, g, func(certain []dataplane.Grant, uncertain map[netip.Addr]bool) {
			for i := range certain {
				want := &certain[i]
				if found, there := is[g][want.Addr]; !there || !coexisting && differs(want, &found) {
					out[deviation{g, want.Addr}] = true
				}
				delete(is[g], want.Addr)
			}
			for a := range uncertain {
				delete(is[g], a)
			}
		})
	}
	if coexisting { // the other agent's
		return out, nil
	}
	for g, foreign := range is {
		for a := range foreign {
			out[deviation{g, a}] = true
		}
	}
	return out, nil
}

// freeze calls f with one set, without those that share its name.
func freeze(grants dataplane.Grants, g dataplane.GrantSet, f func(certain []dataplane.Grant, uncertain map[netip.Addr]bool)) {
	grants.Freeze(g, func(frozen []dataplane.Frozen) {
		for i := range frozen {
			if frozen[i].Set == g {
				f(frozen[i].Certain, frozen[i].Uncertain)
			}
		}
	})
}

func differs(want, is *dataplane.Grant) bool {
	return is.Comment != want.Comment || (is.Timeout-want.Timeout).Abs() > slack
}

// Repair writes the grants again that Verify found, and removes foreign ones.
func (x *packetFilter) Repair(st dataplane.State) error {
	bySet := map[dataplane.GrantSet]map[netip.Addr]bool{}
	for _, d := range x.found {
		if bySet[d.set] == nil {
			bySet[d.set] = map[netip.Addr]bool{}
		}
		bySet[d.set][d.addr] = true
	}
	if len(x.found) > 0 {
		x.owner.Repaired(fmt.Sprintf("nft grants of pod %s on %s, %d sets in all", x.found[0].set.Pod, x.found[0].set.Ports, len(bySet)))
	}
	x.found = nil
	for g, wrong := range bySet {
		ops := []dataplane.GrantOp{{Set: g, Remove: true}, {Set: g}}
		repair := func(certain []dataplane.Grant, uncertain map[netip.Addr]bool) {
			for _, want := range certain {
				if wrong[want.Addr] {
					want.Held = dataplane.Unknown
					ops[1].Grants = append(ops[1].Grants, want)
				}
				delete(wrong, want.Addr)
			}
			for a := range wrong {
				if !uncertain[a] {
					ops[0].Grants = append(ops[0].Grants, dataplane.Grant{Addr: a})
				}
			}
			x.ApplyGrants(ops)
		}
		if st.Grants.Holds(g) {
			freeze(st.Grants, g, repair)
		} else {
			repair(nil, nil)
		}
		for i := range ops {
			if err := ops[i].Err; err != nil && !(ops[i].Remove && dataplane.IsNoSet(err)) {
				return err
			}
		}
	}
	return nil
}
