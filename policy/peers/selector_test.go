package peers

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/testkit/diff"
)

func TestSelectorText(t *testing.T) {
	in := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	for want, s := range map[string]metav1.LabelSelector{
		"*":                  {},
		"app=db":             {MatchLabels: map[string]string{"app": "db"}, MatchExpressions: []metav1.LabelSelectorRequirement{in("app", "In", "db", "db")}},
		"app=,b=c":           {MatchLabels: map[string]string{"b": "c", "app": ""}},
		"a in (,b,c)":        {MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "In", "c", "", "b", "c")}},
		"a!=b,a!=c":          {MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "NotIn", "c"), in("a", "NotIn", "b")}},
		"a notin (b,c)":      {MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "NotIn", "c", "b")}},
		"!x,app=db,y.test/z": {MatchLabels: map[string]string{"app": "db"}, MatchExpressions: []metav1.LabelSelectorRequirement{in("y.test/z", "Exists"), in("x", "DoesNotExist")}},
	} {
		got, err := NewSelector(&s)
		if err != nil || got.text != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	for _, s := range []metav1.LabelSelector{
		{MatchLabels: map[string]string{"a b": "c"}}, {MatchLabels: map[string]string{"a": "b,c"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "in", "b")}}, {MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "In")}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "Exists", "b")}}, {MatchExpressions: []metav1.LabelSelectorRequirement{in("a", "NotIn", "b)")}},
	} {
		if got, err := NewSelector(&s); err == nil {
			t.Errorf("%v is read as %s", s, got.text)
		}
	}
}

// TestSelectorLikeAPI: it selects the same pods as the API's selector, and two selectors
// with one text select the same.
func TestSelectorLikeAPI(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	byText := map[string]labels.Selector{}
	selected, read := 0, 0
	for range 20000 {
		from := randomSelector(r)
		want, wrong := metav1.LabelSelectorAsSelector(from)
		got, err := NewSelector(from)
		diff.MustEqual(t, wrong == nil, err == nil, from, err, wrong)
		if err != nil {
			continue
		}
		read++
		if byText[got.text] == nil {
			byText[got.text] = want
		}
		for range 4 {
			set := randomLabels(r)
			in := got.Matches(set)
			if in != want.Matches(labels.Set(set)) || in != byText[got.text].Matches(labels.Set(set)) {
				t.Fatalf("%s selects %v: %v", got.text, set, in)
			}
			if in {
				selected++
			}
			for i := range got.requirements { // the index must find all that are selected
				if l, one := got.requirements[i].single(); in && one && set[l[0]] != l[1] {
					t.Fatalf("%s: %v is no label of %v", got.text, l, set)
				}
			}
		}
	}
	if selected < read/4 || len(byText) > read/4 {
		t.Errorf("%d selected, %d texts of %d", selected, len(byText), read)
	}
}

func roll[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomLabels(r *rand.Rand) map[string]string {
	set := map[string]string{}
	for range r.IntN(3) {
		set[roll(r, "app", "tier", "env")] = roll(r, "a", "b", "")
	}
	return set
}

func randomSelector(r *rand.Rand) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: randomLabels(r)}
	for range r.IntN(3) {
		q := metav1.LabelSelectorRequirement{Key: roll(r, "app", "tier", "env"),
			Operator: roll(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "in")}
		if q.Operator == metav1.LabelSelectorOpIn || q.Operator == metav1.LabelSelectorOpNotIn {
			q.Values = roll(r, []string{"a"}, []string{"b", "a"}, []string{"", "b"}, []string{"c", "c"})
		}
		s.MatchExpressions = append(s.MatchExpressions, q)
	}
	return s
}

// TestSample: the labels are selected by all selectors, and are found where some labels are.
func TestSample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	found, none := 0, 0
	for range 20000 {
		var all []*Selector
		for range 1 + r.IntN(3) {
			if s, err := NewSelector(randomSelector(r)); err == nil {
				all = append(all, s)
			}
		}
		selected := func(set map[string]string) bool {
			for _, s := range all {
				if !s.Matches(set) {
					return false
				}
			}
			return true
		}
		set, ok := Sample(all...)
		diff.MustEqual(t, selected(set), ok, all, set)
		if ok {
			found++
			continue
		}
		none++
		for range 20 {
			if set := randomLabels(r); selected(set) {
				t.Fatalf("%v select %v, which is not found", all, set)
			}
		}
	}
	if found < 5000 || none < 1000 {
		t.Errorf("%d found, %d not", found, none)
	}
}
