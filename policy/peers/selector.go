package peers

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ops "k8s.io/apimachinery/pkg/selection"
)

// Selector is a label selector in canonical form: selectors that ask the same in
// another order have the same text.
type Selector struct {
	text         string        // "app=db,env in (a,b),!old", "*" for every label
	requirements []requirement // sorted by text
}

// requirement is one requirement of a selector.
type requirement struct {
	text   string
	key    string
	op     ops.Operator // In, NotIn, Exists or DoesNotExist
	values []string     // sorted, each once
}

// NewSelector reads a selector, nil for every label; the error is that of the API's own check.
func NewSelector(from *metav1.LabelSelector) (*Selector, error) {
	if from == nil {
		from = &metav1.LabelSelector{}
	}
	s := &Selector{requirements: make([]requirement, 0, len(from.MatchLabels)+len(from.MatchExpressions))}
	for key, value := range from.MatchLabels { // most selectors have no more, and there are thousands
		if err := s.add(key, ops.In, []string{value}); err != nil {
			return nil, err
		}
	}
	if len(from.MatchExpressions) > 0 {
		checked, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: from.MatchExpressions})
		if err != nil {
			return nil, err
		}
		requirements, _ := checked.Requirements()
		for i := range requirements {
			r := &requirements[i]
			if err := s.add(r.Key(), r.Operator(), r.ValuesUnsorted()); err != nil {
				return nil, err
			}
		}
	}
	if len(s.requirements) > 1 {
		slices.SortFunc(s.requirements, func(a, b requirement) int { return strings.Compare(a.text, b.text) })
		s.requirements = slices.CompactFunc(s.requirements, func(a, b requirement) bool { return a.text == b.text })
	}
	texts := make([]string, len(s.requirements))
	for i := range s.requirements {
		texts[i] = s.requirements[i].text
	}
	s.text = cmp.Or(strings.Join(texts, ","), "*")
	return s, nil
}

// add adds a requirement. One value is compared as one, whatever the operator's form.
func (s *Selector) add(key string, op ops.Operator, values []string) error {
	if len(values) > 1 {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	as := op
	switch {
	case op == ops.In && len(values) == 1:
		as = ops.Equals
	case op == ops.NotIn && len(values) == 1:
		as = ops.NotEquals
	}
	checked, err := labels.NewRequirement(key, as, values)
	if err != nil {
		return err
	}
	s.requirements = append(s.requirements, requirement{text: checked.String(), key: key, op: op, values: values})
	return nil
}

// String returns the selector in canonical form, "*" for every label.
func (s *Selector) String() string { return s.text }

// Everything tells whether the selector selects whatever labels.
func (s *Selector) Everything() bool { return len(s.requirements) == 0 }

// Requirements returns how many requirements Matches asks at most.
func (s *Selector) Requirements() int { return len(s.requirements) }

// Matches tells whether the selector selects what has these labels. A nil Selector selects nothing.
func (s *Selector) Matches(set map[string]string) bool {
	if s == nil {
		return false
	}
	for i := range s.requirements {
		if !s.requirements[i].holds(set) {
			return false
		}
	}
	return true
}

func (a *requirement) holds(set map[string]string) bool {
	value, there := set[a.key]
	switch a.op {
	case ops.In:
		return there && a.lists(value)
	case ops.NotIn:
		return !there || !a.lists(value)
	case ops.Exists:
		return there
	case ops.DoesNotExist:
		return !there
	}
	return false
}

// Sample returns labels that all of selectors select, and whether there are any.
func Sample(selectors ...*Selector) (map[string]string, bool) {
	var all []requirement
	for _, s := range selectors {
		all = append(all, s.requirements...)
	}
	set := map[string]string{}
	for _, a := range all {
		if _, there := set[a.key]; there || a.op == ops.NotIn || a.op == ops.DoesNotExist {
			continue
		}
		values, other := a.values, "x"
		for _, b := range all { // of a label that exists: a value that none lists, or one that some list
			if b.key == a.key && a.op == ops.Exists {
				values, other = append(values, b.values...), other+strings.Join(b.values, "")
			}
		}
		for _, v := range append(slices.Clone(values), other) {
			set[a.key] = v
			if !slices.ContainsFunc(all, func(b requirement) bool { return b.key == a.key && !b.holds(set) }) {
				break
			}
		}
	}
	return set, !slices.ContainsFunc(all, func(b requirement) bool { return !b.holds(set) })
}

// single returns the one label, key and value, that a pod must have.
func (a *requirement) single() ([2]string, bool) {
	if a.op != ops.In || len(a.values) != 1 {
		return [2]string{}, false
	}
	return [2]string{a.key, a.values[0]}, true
}

func (a *requirement) lists(value string) bool {
	if len(a.values) == 1 {
		return a.values[0] == value
	}
	_, found := slices.BinarySearch(a.values, value)
	return found
}
