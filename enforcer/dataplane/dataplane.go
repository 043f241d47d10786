package dataplane

// State is all that a dataplane is to hold. The subjects do not change.
type State struct {
	Subjects Subjects
	Grants   Grants
}

// Missing returns the sets that the subjects' rules ask and the grants do not have, as named names them.
func (st State) Missing(named func(GrantSet) GrantSet) (sets []GrantSet) {
	for ref, s := range st.Subjects {
		for _, ports := range s.Grants {
			for _, v6 := range []bool{false, true} {
				if set := (GrantSet{Pod: ref, Ports: ports, IPv6: v6}); !st.Grants.Holds(set) {
					sets = append(sets, named(set))
				}
			}
		}
	}
	return sets
}
