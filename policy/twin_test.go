package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// twinMatches is the slow and obvious twin of a pattern: it splits both into
// labels and compares them from the left.
func twinMatches(pattern string, n Name) bool {
	pattern = strings.ToLower(strings.TrimSuffix(pattern, "."))
	if pattern == "*" || pattern == "**" {
		return true
	}
	want, got := strings.Split(pattern, "."), slices.Collect(n.Labels())
	if want[0] == "**" {
		for want = want[1:]; len(got) > len(want); got = got[1:] {
			if len(got) == len(want)+1 {
				return twinLabels(want, got[1:])
			}
		}
		return false
	}
	return twinLabels(want, got)
}

func twinLabels(want, got []string) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !twinGlob(want[i], got[i]) {
			return false
		}
	}
	return true
}

// twinGlob tries every way to give characters to a wildcard.
func twinGlob(glob, label string) bool {
	switch {
	case glob == "":
		return label == ""
	case glob[0] == '*':
		return twinGlob(glob[1:], label) || label != "" && twinGlob(glob, label[1:])
	}
	return label != "" && glob[0] == label[0] && twinGlob(glob[1:], label[1:])
}

// twinDecide looks at every match of every policy that selects the pod.
func twinDecide(policies []v1alpha1.FQDNNetworkPolicy, pod *Pod, n Name) []string {
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b v1alpha1.FQDNNetworkPolicy) int { return strings.Compare(a.Name, b.Name) })
	var found []string
	for _, p := range policies {
		selects := p.Namespace == pod.Namespace
		for k, v := range p.Spec.PodSelector.MatchLabels {
			selects = selects && pod.Labels[k] == v
		}
		for i, rule := range p.Spec.Egress {
			for j, m := range rule.Matches {
				text := m.Pattern
				if text == nil {
					text = m.Name
				}
				if selects && twinMatches(*text, n) {
					found = append(found, fmt.Sprintf("%s/%s spec.egress[%d].matches[%d]", p.Namespace, p.Name, i, j))
				}
			}
		}
	}
	return found
}

// Few different labels make many overlaps.
var (
	twinLabelsOf = []string{"a", "b", "ab", "ba", "aab", "abab", "b-a", "a-b-a"}
	twinGlobsOf  = []string{"*", "*", "a*", "*a", "a*b", "*b*", "a*b*a", "*-*", "a*a", "*ab"}
)

func randomPattern(r *rand.Rand) string {
	if r.IntN(30) == 0 {
		return []string{"*", "**"}[r.IntN(2)]
	}
	var labels []string
	for range 1 + r.IntN(3) {
		from := twinLabelsOf
		if r.IntN(3) == 0 {
			from = twinGlobsOf
		}
		labels = append(labels, from[r.IntN(len(from))])
	}
	if r.IntN(4) == 0 {
		labels = append([]string{"**"}, labels...)
	}
	return strings.Join(labels, ".")
}

func randomName(t testing.TB, r *rand.Rand) Name {
	if r.IntN(50) == 0 {
		return ""
	}
	var labels []string
	for range 1 + r.IntN(4) {
		labels = append(labels, twinLabelsOf[r.IntN(len(twinLabelsOf))])
	}
	return mustName(t, strings.Join(labels, "."))
}

func randomPolicy(r *rand.Rand, name string) v1alpha1.FQDNNetworkPolicy {
	p := aPolicy(name, []string{"", "x", "y"}[r.IntN(3)])
	for range 1 + r.IntN(3) {
		var texts []string
		for range 1 + r.IntN(4) {
			texts = append(texts, randomPattern(r))
		}
		rule := aRule(texts...)
		if r.IntN(2) == 0 {
			rule = on(rule, tcp(int32(1+r.IntN(3))))
		}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	if r.IntN(4) == 0 {
		p.Spec.Enforcement = v1alpha1.EnforcementAudit
	}
	return p
}

// TestDecideLikeTwin asks views and twin the same questions.
func TestDecideLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		var policies []v1alpha1.FQDNNetworkPolicy
		for i := range 1 + r.IntN(60) {
			policies = append(policies, randomPolicy(r, fmt.Sprintf("p%02d", i)))
		}
		pods := []Pod{aPod("one", "x", "10.0.0.1"), aPod("two", "y", "10.0.0.2"), aPod("three", "z", "10.0.0.3")}
		s := compile(pods, policies...)
		for range 100 {
			n := randomName(t, r)
			for i := range pods {
				var got []string
				if v := s.ViewOf(pods[i].PodRef); v != nil {
					got = matchPaths(v.Decide(n))
				}
				if diff := cmp.Diff(twinDecide(policies, &pods[i], n), got); diff != "" {
					t.Fatalf("round %d, %s asks %s:\n%s", round, pods[i], n, diff)
				}
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("*.a.b **.b a*.a.b", "ab.a.b")
	f.Add("* ** a.b", ".")
	f.Add("a*b*a.b a*a.b **.a*b.b", "aba.b")
	f.Fuzz(func(t *testing.T, texts, name string) {
		n, err := ParseName(name)
		if err != nil {
			return
		}
		var good []string
		for _, text := range strings.Fields(texts) {
			if _, err := ParsePattern(text); err == nil && len(good) < MaxMatches {
				good = append(good, text)
			}
		}
		pod := aPod("one", "x", "10.0.0.1")
		policies := []v1alpha1.FQDNNetworkPolicy{aPolicy("p", "", aRule(good...)), aPolicy("q", "x", aRule(good...))}
		got := matchPaths(compile([]Pod{pod}, policies...).Views[0].Decide(n))
		if diff := cmp.Diff(twinDecide(policies, &pod, n), got); diff != "" {
			t.Error(diff)
		}
	})
}
