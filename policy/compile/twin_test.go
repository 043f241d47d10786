package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// twinDecide looks at every match of every policy that selects the pod.
func twinDecide(policies []*v1alpha1.FQDNNetworkPolicy, pod *policy.Pod, n fqdn.Name) []string {
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b *v1alpha1.FQDNNetworkPolicy) int { return strings.Compare(a.Name, b.Name) })
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
				pattern, err := fqdn.ParsePattern(*text)
				if err == nil && selects && pattern.Matches(n) {
					found = append(found, fmt.Sprintf("%s/%s spec.egress[%d].matches[%d]", p.Namespace, p.Name, i, j))
				}
			}
		}
	}
	return found
}

// Few different patterns and labels make many overlaps.
var (
	patternTexts = []string{"*", "**", "a", "a.b", "b.a", "ab.a", "aab.b", "b-a.b", "*.b", "*a.b", "a*.b", "a*b.a", "*b*.a", "*.*", "**.b", "**.a.b", "**.a*"}
	labelTexts   = []string{"a", "b", "ab", "ba", "aab", "abab", "b-a"}
)

func randomName(t testing.TB, r *rand.Rand) fqdn.Name {
	var labels []string
	for range 1 + r.IntN(3) {
		labels = append(labels, labelTexts[r.IntN(len(labelTexts))])
	}
	return policytest.Name(strings.Join(labels, "."))
}

func randomPolicy(r *rand.Rand, name string) *v1alpha1.FQDNNetworkPolicy {
	p := aPolicy(name, []string{"", "x", "y"}[r.IntN(3)])
	for range 1 + r.IntN(3) {
		var texts []string
		for range 1 + r.IntN(4) {
			texts = append(texts, patternTexts[r.IntN(len(patternTexts))])
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
	asked, many := 0, 0
	for round := range short.Rounds(20, 60, 600) {
		var policies []*v1alpha1.FQDNNetworkPolicy
		for i := range 1 + r.IntN(60) {
			policies = append(policies, randomPolicy(r, fmt.Sprintf("p%02d", i)))
		}
		pods := []policy.Pod{aPod("one", "x", "10.0.0.1"), aPod("two", "y", "10.0.0.2"), aPod("three", "z", "10.0.0.3")}
		s := compile(pods, policies...)
		for range 100 {
			n := randomName(t, r)
			for i := range pods {
				var got []string
				if v := s.ViewOf(pods[i].PodRef); v != nil {
					got = matchPaths(v.Decide(n))
				}
				want := twinDecide(policies, &pods[i], n)
				if len(want) > policy.MaxOpenings {
					many++ // the first of each opening count, see package fqdn
					continue
				}
				asked++
				diff.Fatal(t, want, got, "round", round, pods[i], "asks", n)
			}
		}
	}
	if asked < 4*many {
		t.Errorf("%d of %d names have too many matches", many, asked+many)
	}
}
