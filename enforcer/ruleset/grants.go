package ruleset

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// GrantSet returns the tables' set of grants, which both families share: the pod's for single
// ports, or one for other ports.
func GrantSet(g dataplane.GrantSet) layout.GrantSet {
	id := dataplane.PodID(g.Pod)
	if _, _, single := g.Single(); single {
		return layout.GrantSet{Name: id, Ported: true}
	}
	if g.Ports == policy.AnyPort {
		return layout.GrantSet{Name: id + "-any"}
	}
	sum := sha256.Sum256([]byte(g.Ports))
	return layout.GrantSet{Name: id + "-" + hex.EncodeToString(sum[:4]), Ports: dataplane.Ports(g.Ports)}
}

// addGrants adds the sets of grants to the state of the tables, and to the subjects that it has.
func addGrants(s *layout.State, subjects dataplane.Subjects, grants dataplane.Grants) {
	sets, of := map[string]layout.GrantSet{}, map[string]*dataplane.Subject{}
	for g := range grants.Bounds() {
		set := GrantSet(g)
		sets[set.Name] = set
	}
	for ref, p := range subjects {
		of[dataplane.PodID(ref)] = p
	}
	for i := range s.Subjects {
		p := of[s.Subjects[i].ID]
		for _, ports := range p.Grants {
			asked := GrantSet(dataplane.GrantSet{Pod: p.Pod, Ports: ports})
			sets[asked.Name] = asked
			if !slices.ContainsFunc(s.Subjects[i].Grants, func(o layout.GrantSet) bool { return o.Name == asked.Name }) {
				s.Subjects[i].Grants = append(s.Subjects[i].Grants, asked)
			}
		}
	}
	s.GrantSets = slices.SortedFunc(maps.Values(sets), func(a, b layout.GrantSet) int { return cmp.Compare(a.Name, b.Name) })
}
