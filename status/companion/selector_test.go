package companion

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/testkit/fatal"
)

type requirements = []metav1.LabelSelectorRequirement

func need(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func TestIntersect(t *testing.T) {
	const in, notIn, exists, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	is := func(key, value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	such := func(r ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: r}
	}
	for name, c := range map[string]struct {
		a, b     metav1.LabelSelector
		want     requirements
		possible bool
	}{
		"all of both":              {such(), such(), nil, true},
		"all and some":             {such(), is("a", "1"), requirements{need("a", in, "1")}, true},
		"two labels":               {is("b", "2"), is("a", "1"), requirements{need("a", in, "1"), need("b", in, "2")}, true},
		"the same":                 {is("a", "1"), is("a", "1"), requirements{need("a", in, "1")}, true},
		"two values":               {is("a", "1"), is("a", "2"), nil, false},
		"values in common":         {such(need("a", in, "3", "1", "2")), such(need("a", in, "2", "3", "4")), requirements{need("a", in, "2", "3")}, true},
		"no values in common":      {such(need("a", in, "1")), such(need("a", in, "2", "3")), nil, false},
		"in without notIn":         {such(need("a", in, "1", "2")), such(need("a", notIn, "2", "3")), requirements{need("a", in, "1")}, true},
		"in and notIn":             {is("a", "1"), such(need("a", notIn, "1")), nil, false},
		"in and exists":            {is("a", "1"), such(need("a", exists)), requirements{need("a", in, "1")}, true},
		"in and absent":            {is("a", "1"), such(need("a", absent)), nil, false},
		"exists and absent":        {such(need("a", exists)), such(need("a", absent)), nil, false},
		"notIn and absent":         {such(need("a", notIn, "1")), such(need("a", absent)), requirements{need("a", absent)}, true},
		"notIn and exists":         {such(need("a", notIn, "2")), such(need("a", exists)), requirements{need("a", exists), need("a", notIn, "2")}, true},
		"notIn and notIn":          {such(need("a", notIn, "2")), such(need("a", notIn, "1", "2")), requirements{need("a", notIn, "1", "2")}, true},
		"impossible in itself":     {such(need("a", in, "1"), need("a", in, "2")), such(), nil, false},
		"the empty value is a one": {is("a", ""), such(need("a", exists)), requirements{need("a", in, "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][2]metav1.LabelSelector{{c.a, c.b}, {c.b, c.a}} {
				both, possible, err := intersect(&order[0], &order[1])
				fatal.If(t, err)
				if possible != c.possible {
					t.Fatalf("possible: %v", possible)
				}
				if possible {
					if diff := cmp.Diff(c.want, both.MatchExpressions); diff != "" || len(both.MatchLabels) > 0 {
						t.Error(diff)
					}
				}
			}
		})
	}
}

func TestIntersectRefusesNonsense(t *testing.T) {
	for _, bad := range []metav1.LabelSelector{
		{MatchExpressions: requirements{need("a", "Like", "1")}}, {MatchExpressions: requirements{need("a", metav1.LabelSelectorOpIn)}},
		{MatchExpressions: requirements{need("a", metav1.LabelSelectorOpExists, "1")}}, {MatchLabels: map[string]string{"a b": "1"}},
	} {
		for _, order := range [][2]metav1.LabelSelector{{bad, {}}, {{}, bad}} {
			if both, possible, err := intersect(&order[0], &order[1]); err == nil || possible || both != nil {
				t.Errorf("%v: %v", bad, both)
			}
		}
	}
}

// TestIntersectAgainstTwin: on random labels the selector of both selects what both
// select, and where it says that nothing can be, nothing is.
func TestIntersectAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	possibleOnes, selected := 0, 0
	for range 3000 {
		a, b := randomSelector(r), randomSelector(r)
		sa, sb := asSelector(t, a), asSelector(t, b)
		both, possible, err := intersect(a, b)
		fatal.If(t, err)
		ab := labels.Nothing()
		if possible {
			possibleOnes++
			ab = asSelector(t, both)
		}
		for range 10 {
			set := randomLabels(r)
			want := sa.Matches(set) && sb.Matches(set)
			if want {
				selected++
			}
			if ab.Matches(set) != want {
				t.Fatalf("%v and %v give %v, which is wrong for %v", sa, sb, ab, set)
			}
		}
		swapped, _, err := intersect(b, a)
		fatal.If(t, err)
		if !reflect.DeepEqual(both, swapped) {
			t.Fatalf("%v and %v: %v, and %v the other way", sa, sb, both, swapped)
		}
		if !possible {
			continue
		}
		again, _, err := intersect(both, both)
		fatal.If(t, err)
		if !reflect.DeepEqual(both, again) {
			t.Fatalf("%v is not canonical: %v", both, again)
		}
	}
	if possibleOnes < 500 || selected < 500 {
		t.Errorf("%d possible, %d selected: the test tests little", possibleOnes, selected)
	}
}

func asSelector(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	out, err := metav1.LabelSelectorAsSelector(s)
	fatal.If(t, err)
	return out
}

var (
	someKeys   = []string{"a", "b", "example.org/c"}
	someValues = []string{"", "1", "2", "3"}
)

func randomSelector(r *rand.Rand) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range r.IntN(3) {
		metav1.AddLabelToSelector(s, someKeys[r.IntN(3)], someValues[r.IntN(4)])
	}
	for range r.IntN(3) {
		n := need(someKeys[r.IntN(3)], []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}[r.IntN(4)])
		if n.Operator == "In" || n.Operator == "NotIn" {
			for range 1 + r.IntN(3) {
				n.Values = append(n.Values, someValues[r.IntN(4)])
			}
		}
		s.MatchExpressions = append(s.MatchExpressions, n)
	}
	return s
}

func randomLabels(r *rand.Rand) labels.Set {
	set := labels.Set{}
	for _, k := range someKeys {
		if r.IntN(3) > 0 {
			set[k] = someValues[r.IntN(4)]
		}
	}
	return set
}
