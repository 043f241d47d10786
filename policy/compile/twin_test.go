package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			if rule = on(rule, tcp(int32(1+r.IntN(3)))); r.IntN(4) == 0 {
				rule = checked(rule)
			}
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

// history is a small cluster that changes at random: few names, few addresses and
// few labels, so that pods come back under other UIDs and addresses collide.
type history struct {
	*rand.Rand
	policies map[string]*v1alpha1.FQDNNetworkPolicy
	pods     map[string]policy.Pod
}

func newHistory(seed uint64) *history {
	return &history{rand.New(rand.NewPCG(seed, 7)), map[string]*v1alpha1.FQDNNetworkPolicy{}, map[string]policy.Pod{}}
}

func pick[T any](h *history, of ...T) T { return of[h.IntN(len(of))] }

func (h *history) step() {
	space := pick(h, "shop", "other")
	policyName, podName := fmt.Sprintf("p%d", h.IntN(6)), fmt.Sprintf("pod%d", h.IntN(5))
	switch h.IntN(7) {
	case 6: // the same again, in other memory
		if p, ok := h.policies[space+"/"+policyName]; ok {
			h.policies[space+"/"+policyName] = p.DeepCopy()
		}
	case 0:
		delete(h.policies, space+"/"+policyName)
	case 1, 2:
		p := randomPolicy(h.Rand, policyName)
		p.Namespace = space
		p.Spec.Denied = pick(h, "", v1alpha1.DeniedDrop, v1alpha1.DeniedReject)
		p.Spec.DNS.Unmatched = pick(h, "", v1alpha1.UnmatchedNXDomain, v1alpha1.UnmatchedRefuse)
		if h.IntN(10) == 0 {
			p.Spec.Egress[0].Matches[0].Name = ptr("a..b")
		}
		if h.IntN(3) == 0 {
			p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
			}}
		}
		h.policies[space+"/"+policyName] = p
	case 3:
		delete(h.pods, podName)
	default:
		p := aPod(podName, pick(h, "x", "y"), pick(h, "10.0.0.0", "10.0.0.1", "10.0.0.2"))
		p.Namespace, p.UID = space, pick(h, "", "1", "2")
		p.HostNetwork, p.Phase, p.NodeName = h.IntN(8) == 0, pick(h, "Running", "Running", "Running", "Failed"), pick(h, "", "", "", "far")
		if h.IntN(2) == 0 {
			p.IPs = append(p.IPs, addr(pick(h, "10.0.0.2", "10.0.0.3", "10.0.0.4", "127.0.0.1")))
		}
		h.pods[podName] = p
	}
}

// input gives all of it in another order each time.
func (h *history) input() Input {
	var in Input
	for _, p := range h.policies { // in any order
		in.Policies = append(in.Policies, p)
	}
	if h.IntN(4) > 0 { // most are where they were, or beside it
		slices.SortFunc(in.Policies, func(a, b *v1alpha1.FQDNNetworkPolicy) int {
			return strings.Compare(a.Namespace+a.Name, b.Namespace+b.Name)
		})
	}
	for _, p := range h.pods {
		in.Pods = append(in.Pods, p)
	}
	slices.SortFunc(in.Pods, func(a, b policy.Pod) int { return a.Compare(b.PodRef) })
	h.Shuffle(len(in.Pods), func(i, j int) { in.Pods[i], in.Pods[j] = in.Pods[j], in.Pods[i] })
	return in
}

// TestHistoriesLikeFresh lets one compiler follow each of many short histories, and
// compares every snapshot with that of a compiler that knows the present alone.
func TestHistoriesLikeFresh(t *testing.T) {
	for seed := range uint64(short.Rounds(15, 50, 500)) {
		h := newHistory(seed)
		c := New()
		for step := range 60 {
			for range 1 + h.IntN(4) {
				h.step()
			}
			in := h.input()
			names := []fqdn.Name{randomName(t, h.Rand), randomName(t, h.Rand), randomName(t, h.Rand)}
			diff.Fatal(t, dump(t, New().Compile(in), names), dump(t, c.Compile(in), names), "seed", seed, "step", step)
			if len(c.policies.known) != len(h.policies) || len(c.rulesets.unions) > 2*len(h.pods) || len(c.selected) > len(h.pods) {
				t.Fatalf("the compiler keeps %d policies, %d rulesets and %d pods for %d and %d",
					len(c.policies.known), len(c.rulesets.unions), len(c.selected), len(h.policies), len(h.pods))
			}
		}
	}
}
