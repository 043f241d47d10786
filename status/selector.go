package status

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wishes are what the requirements of a selector say of one label.
type wishes struct {
	limited        bool // the value must be one of oneOf
	oneOf, notOf   map[string]bool
	exists, absent bool
}

// intersect returns a selector that selects what both select, in a canonical form:
// sorted, and the same for the same meaning wherever that can be told from one label
// alone. possible is false where no pod can have such labels.
func intersect(a, b *metav1.LabelSelector) (both *metav1.LabelSelector, possible bool, err error) {
	byKey := map[string]*wishes{}
	for _, s := range []*metav1.LabelSelector{a, b} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, false, fmt.Errorf("a selector cannot be read: %w", err)
		}
		for key, value := range s.MatchLabels {
			wish(byKey, key).in([]string{value})
		}
		for _, r := range s.MatchExpressions {
			wish(byKey, r.Key).add(r)
		}
	}
	both = &metav1.LabelSelector{}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		requirements, possible := byKey[key].requirements(key)
		if !possible {
			return nil, false, nil
		}
		both.MatchExpressions = append(both.MatchExpressions, requirements...)
	}
	return both, true, nil
}

func wish(byKey map[string]*wishes, key string) *wishes {
	w := byKey[key]
	if w == nil {
		w = &wishes{oneOf: map[string]bool{}, notOf: map[string]bool{}}
		byKey[key] = w
	}
	return w
}

func (w *wishes) add(r metav1.LabelSelectorRequirement) {
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		w.in(r.Values)
	case metav1.LabelSelectorOpNotIn:
		for _, v := range r.Values {
			w.notOf[v] = true
		}
	case metav1.LabelSelectorOpExists:
		w.exists = true
	case metav1.LabelSelectorOpDoesNotExist:
		w.absent = true
	}
}

// in leaves those values that were possible before.
func (w *wishes) in(values []string) {
	left := map[string]bool{}
	for _, v := range values {
		if !w.limited || w.oneOf[v] {
			left[v] = true
		}
	}
	w.limited, w.oneOf = true, left
}

// requirements returns the shortest form. NotIn holds for pods without the label too.
func (w *wishes) requirements(key string) (out []metav1.LabelSelectorRequirement, possible bool) {
	require := func(operator metav1.LabelSelectorOperator, values map[string]bool) {
		r := metav1.LabelSelectorRequirement{Key: key, Operator: operator}
		if len(values) > 0 {
			r.Values = slices.Sorted(maps.Keys(values))
		}
		out = append(out, r)
	}
	switch {
	case w.absent:
		if w.limited || w.exists {
			return nil, false
		}
		require(metav1.LabelSelectorOpDoesNotExist, nil)
		return out, true
	case w.limited:
		maps.DeleteFunc(w.oneOf, func(v string, _ bool) bool { return w.notOf[v] })
		if len(w.oneOf) == 0 {
			return nil, false
		}
		require(metav1.LabelSelectorOpIn, w.oneOf)
		return out, true
	}
	if w.exists {
		require(metav1.LabelSelectorOpExists, nil)
	}
	if len(w.notOf) > 0 {
		require(metav1.LabelSelectorOpNotIn, w.notOf)
	}
	return out, true
}
