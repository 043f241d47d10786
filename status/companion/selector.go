package companion

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keyRequirements are all requirements of two selectors for one label.
type keyRequirements struct {
	limited        bool // the value must be one of oneOf
	oneOf, notOf   map[string]bool
	exists, absent bool
}

// intersect returns a selector that selects what both select, in a canonical form:
// sorted, and the same for the same meaning wherever that can be told from one label
// alone. possible is false where no pod can have such labels.
func intersect(a, b *metav1.LabelSelector) (both *metav1.LabelSelector, possible bool, err error) {
	byKey := map[string]*keyRequirements{}
	for _, s := range []*metav1.LabelSelector{a, b} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, false, fmt.Errorf("a selector cannot be read: %w", err)
		}
		for key, value := range s.MatchLabels {
			requirementsOf(byKey, key).in([]string{value})
		}
		for _, r := range s.MatchExpressions {
			requirementsOf(byKey, r.Key).add(r)
		}
	}
	both = &metav1.LabelSelector{}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		requirements, possible := byKey[key].merged(key)
		if !possible {
			return nil, false, nil
		}
		both.MatchExpressions = append(both.MatchExpressions, requirements...)
	}
	return both, true, nil
}

func requirementsOf(byKey map[string]*keyRequirements, key string) *keyRequirements {
	k := byKey[key]
	if k == nil {
		k = &keyRequirements{oneOf: map[string]bool{}, notOf: map[string]bool{}}
		byKey[key] = k
	}
	return k
}

func (k *keyRequirements) add(r metav1.LabelSelectorRequirement) {
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		k.in(r.Values)
	case metav1.LabelSelectorOpNotIn:
		for _, v := range r.Values {
			k.notOf[v] = true
		}
	case metav1.LabelSelectorOpExists:
		k.exists = true
	case metav1.LabelSelectorOpDoesNotExist:
		k.absent = true
	}
}

// in keeps the values that were possible before.
func (k *keyRequirements) in(values []string) {
	left := map[string]bool{}
	for _, v := range values {
		if !k.limited || k.oneOf[v] {
			left[v] = true
		}
	}
	k.limited, k.oneOf = true, left
}

// merged returns the shortest form. NotIn holds for pods without the label too.
func (k *keyRequirements) merged(key string) (out []metav1.LabelSelectorRequirement, possible bool) {
	require := func(operator metav1.LabelSelectorOperator, values map[string]bool) {
		r := metav1.LabelSelectorRequirement{Key: key, Operator: operator}
		if len(values) > 0 {
			r.Values = slices.Sorted(maps.Keys(values))
		}
		out = append(out, r)
	}
	switch {
	case k.absent:
		if k.limited || k.exists {
			return nil, false
		}
		require(metav1.LabelSelectorOpDoesNotExist, nil)
		return out, true
	case k.limited:
		maps.DeleteFunc(k.oneOf, func(v string, _ bool) bool { return k.notOf[v] })
		if len(k.oneOf) == 0 {
			return nil, false
		}
		require(metav1.LabelSelectorOpIn, k.oneOf)
		return out, true
	}
	if k.exists {
		require(metav1.LabelSelectorOpExists, nil)
	}
	if len(k.notOf) > 0 {
		require(metav1.LabelSelectorOpNotIn, k.notOf)
	}
	return out, true
}
