package nftables

import (
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
)

// AddTo adds the grants of a state to the subjects that the state of the tables has. It writes nothing.
func (x *packetFilter) AddTo(s *nft.State, st dataplane.State) {
	sets, of := map[string]nft.GrantSet{}, map[string]*dataplane.Subject{}
	for g := range st.Grants.Bounds() {
		sets[kernelName(g)] = setOf(g)
	}
	for ref, p := range st.Subjects {
		of[dataplane.PodID(ref)] = p
	}
	s.Subjects = slices.Clone(s.Subjects)
	for i := range s.Subjects {
		p := of[s.Subjects[i].ID]
		if p == nil {
			continue
		}
		var grants []nft.Grants
		for _, ports := range p.Grants {
			g := dataplane.GrantSet{Pod: p.Pod, Ports: ports}
			set := setOf(g)
			sets[set.Name] = set
			if !slices.ContainsFunc(grants, func(o nft.Grants) bool { return o.Set == set }) {
				grants = append(grants, nft.Grants{Set: set, Ports: portsOf(g)})
			}
		}
		s.Subjects[i].Grants = grants
	}
	s.GrantSets = nil
	for _, name := range sortedNames(sets) {
		s.GrantSets = append(s.GrantSets, sets[name])
	}
}
