package compile

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ops "k8s.io/apimachinery/pkg/selection"
)

// selector is a label selector in canonical form: selectors that ask the same in
// another order have the same text.
type selector struct {
	text string // "app=db,env in (a,b),!old", "*" for every label
	asks []ask  // sorted by text
}

// ask is one requirement of a selector.
type ask struct {
	text   string
	key    string
	op     ops.Operator // In, NotIn, Exists or DoesNotExist
	values []string     // sorted, each once
}

// newSelector reads a selector; the error is that of the API's own check.
func newSelector(from *metav1.LabelSelector) (*selector, error) {
	checked, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return nil, err
	}
	s := &selector{}
	requirements, _ := checked.Requirements()
	for _, r := range requirements {
		s.asks = append(s.asks, newAsk(r.Key(), r.Operator(), r.ValuesUnsorted()))
	}
	slices.SortFunc(s.asks, func(a, b ask) int { return strings.Compare(a.text, b.text) })
	s.asks = slices.CompactFunc(s.asks, func(a, b ask) bool { return a.text == b.text })
	texts := make([]string, len(s.asks))
	for i := range s.asks {
		texts[i] = s.asks[i].text
	}
	if s.text = strings.Join(texts, ","); s.text == "" {
		s.text = "*"
	}
	return s, nil
}

func newAsk(key string, op ops.Operator, values []string) ask {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	a := ask{key: key, op: op, values: values}
	switch op {
	case ops.Equals, ops.DoubleEquals:
		a.op = ops.In
	case ops.NotEquals:
		a.op = ops.NotIn
	}
	list := strings.Join(values, ",")
	switch {
	case a.op == ops.In && len(values) == 1:
		a.text = key + "=" + list
	case a.op == ops.In:
		a.text = key + " in (" + list + ")"
	case a.op == ops.NotIn && len(values) == 1:
		a.text = key + "!=" + list
	case a.op == ops.NotIn:
		a.text = key + " notin (" + list + ")"
	case a.op == ops.DoesNotExist:
		a.text = "!" + key
	default:
		a.text = key
	}
	return a
}

// everything tells whether the selector selects whatever labels.
func (s *selector) everything() bool { return len(s.asks) == 0 }

// matches tells whether the selector selects what has these labels.
func (s *selector) matches(set map[string]string) bool {
	for i := range s.asks {
		if !s.asks[i].holds(set) {
			return false
		}
	}
	return true
}

func (a *ask) holds(set map[string]string) bool {
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

// single returns the one label, key and value, that a pod must have.
func (a *ask) single() ([2]string, bool) {
	if a.op != ops.In || len(a.values) != 1 {
		return [2]string{}, false
	}
	return [2]string{a.key, a.values[0]}, true
}

func (a *ask) lists(value string) bool {
	if len(a.values) == 1 {
		return a.values[0] == value
	}
	_, found := slices.BinarySearch(a.values, value)
	return found
}
