package entries

import (
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Verify compares the entries of rules in the kernel with the grants.
func (s *Store) Verify(rules []policy.RuleID, grants Grants) ([]dataplane.Deviation, error) {
	return s.comparison(rules, grants).Verify()
}

// Repair writes the entries again that Verify found, those of lasting rules first, and
// removes foreign ones.
func (s *Store) Repair(wrong []dataplane.Deviation, grants Grants) error {
	return s.comparison(nil, grants).Repair(wrong)
}

func (s *Store) comparison(rules []policy.RuleID, grants Grants) *dataplane.Comparison {
	sets := func(yield func(dataplane.GrantSet) bool) {
		for set := range grants.RuleSets() {
			if slices.Contains(rules, set.Rule) && !yield(set) {
				return
			}
		}
	}
	list := func(each func(dataplane.GrantSet, []dataplane.Grant)) error {
		at := map[place]dataplane.GrantSet{}
		for set := range sets {
			at[place{set.Rule, set.Subject}] = set
		}
		found, err := s.list(slices.Clone(rules))
		for of, entries := range found {
			set, wanted := at[of]
			if !wanted {
				set = dataplane.GrantSet{Rule: of.rule, Subject: of.subject, IPv6: of.subject.Is6()}
			}
			each(set, grantsOf(entries))
		}
		return err
	}
	return &dataplane.Comparison{Sets: sets, Members: grants.Members, Freeze: grants.Freeze, List: list, Apply: s.ApplyGrants, Coexisting: s.coexisting}
}
