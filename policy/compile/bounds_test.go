package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// The rules of the policies here, and the matches of their rules: fewer than a policy may have.
const rulesEach, matchesEach = 32, 64

// overlapping is policies at the limits of their schema: half of their matches are exact
// names, the other half globs that match all of those names.
func overlapping(policies int) []*v1alpha1.FQDNNetworkPolicy {
	long := strings.Repeat("a", 60)
	var globs []string
	for i := 1; i < 60; i++ {
		for j := 1; i+j < 60; j++ {
			globs = append(globs, long[:i]+"*"+long[:j])
		}
	}
	var out []*v1alpha1.FQDNNetworkPolicy
	at := 0
	for k := range policies {
		p := aPolicy(fmt.Sprintf("p%03d", k), "")
		for r := range rulesEach {
			var texts []string
			for range matchesEach {
				text := fmt.Sprintf("%s.n%d.test", long, at)
				if r%2 > 0 {
					text = globs[at%len(globs)] + "." + []string{"*", "n*", "*n*"}[at/len(globs)%3] + ".test"
				}
				texts = append(texts, text)
				at++
			}
			p.Spec.Egress = append(p.Spec.Egress, aRule(texts...))
		}
		out = append(out, p)
	}
	return out
}

// TestCompileIsNotCubic: 32 such policies take seconds at most, where each exact
// name against each glob took half an hour. So the bound of time can be wide.
func TestCompileIsNotCubic(t *testing.T) {
	policies := overlapping(32)
	var s *policy.Snapshot
	if took := spent(t, func() { s = compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, policies...) }); took > 2*time.Minute {
		t.Errorf("the compile took %v", took)
	}
	v := s.Views[0]
	matches := 0
	for r := range v.Rules.All() {
		matches += len(r.Matches)
	}
	if most := MaxViewMatches; matches != most || len(s.Problems) != 32-most/rulesEach/matchesEach {
		t.Errorf("%d matches and %d problems", matches, len(s.Problems))
	}
	n := policytest.Name(strings.Repeat("a", 60) + ".n7.test")
	var want []string
	for r := range v.Rules.All() {
		for _, m := range r.Matches {
			if m.Pattern.Matches(n) {
				want = append(want, r.Policy+" "+m.Pattern.String())
			}
		}
	}
	var got []string
	for _, m := range v.Decide(n).Matches {
		got = append(got, m.By())
	}
	if diff := cmp.Diff(want[:policy.MaxOpenings], got); diff != "" || len(want) < 1000 {
		t.Errorf("%d matches, twin and index differ: %s", len(want), diff)
	}
}

// portRules are rules for the name, each on one port from first on.
func portRules(name string, first, rules int) []v1alpha1.EgressRule {
	var out []v1alpha1.EgressRule
	for i := range rules {
		out = append(out, on(aRule(fmt.Sprintf("%s%d.test", name, first+i)), tcp(int32(first+i))))
	}
	return out
}

func TestPortSetsAreBounded(t *testing.T) {
	var policies []*v1alpha1.FQDNNetworkPolicy
	for i := range 10 {
		policies = append(policies, aPolicy(fmt.Sprintf("p%d", i), "", portRules("n", 1+i*rulesEach, rulesEach)...))
	}
	policies[8].Spec.Egress[5] = on(aRule("known.test"), tcp(1)) // a port set that is there
	policies = append(policies, audited(aPolicy("a", "", portRules("seen", 2000, rulesEach)...)))
	slices.Reverse(policies) // the order they are given in does not count
	pods := []policy.Pod{aPod("web", "x", "10.0.0.1"), aPod("db", "y", "10.0.0.2")}
	s := compile(pods, policies...)
	v := s.View(addr("10.0.0.1"))
	if len(v.PortSets()) != MaxViewPortSets || slices.Contains(v.PortSets(), "tcp/257") || !slices.Contains(v.PortSets(), "tcp/256") {
		t.Errorf("%d port sets: %v", len(v.PortSets()), v.PortSets())
	}
	for name, allowed := range map[string]bool{"n1.test": true, "n256.test": true, "n257.test": false, "n320.test": false, "known.test": true} {
		if got := v.Decide(policytest.Name(name)); got.Allowed() != allowed || (got.Openings(60) != nil) != allowed {
			t.Errorf("%s is allowed: %v", name, got.Allowed())
		}
	}
	if !v.Decide(policytest.Name("seen2000.test")).Audited() || !v.Enforced || len(v.Policies) != 11 {
		t.Errorf("what is only logged takes room, or policies are lost: %v, %v", v.Enforced, v.Policies)
	}
	var got []string
	for _, p := range s.Problems {
		got = append(got, fmt.Sprint(p.Object, " ", p.Reason, " ", p.Path, " ", p.Message))
	}
	const why = " more of the policy open nothing for pod shop/db: the policies that select it open more than 256 different sets of ports together; " +
		"give rules the same ports, or a range for several; each rule with serverName: Require counts as one"
	diff.Error(t, []string{
		"policy shop/p8 PartiallyInvalid spec.egress[0] this rule and 30" + why, "policy shop/p9 PartiallyInvalid spec.egress[0] this rule and 31" + why,
	}, got)
}

// TestOpeningsOfANameAreBounded: of rules that accept those beyond the bound are left out, in the
// order of evaluation, and their policies say so. Equal openings are one, and Audit policies take no room.
func TestOpeningsOfANameAreBounded(t *testing.T) {
	const name = "a.test"
	equal := aPolicy("o", "", on(aRule(name), tcp(1)))
	long := aPolicy("p4", "", on(aRule("b.test", "*.test"), tcp(1)))
	long.Spec.TTL.MaxSeconds = ptr(int64(60))
	var rules [3][]v1alpha1.EgressRule
	for i := range policy.MaxOpenings + 3 {
		rules[i/rulesEach] = append(rules[i/rulesEach], on(aRule(name, fmt.Sprintf("own%d.test", i)), tcp(int32(1+i))))
	}
	policies := []*v1alpha1.FQDNNetworkPolicy{aPolicy("p0", "", rules[0]...), aPolicy("p1", "", rules[1]...), aPolicy("p2", "", rules[2]...),
		equal, long, audited(aPolicy("a", "", append(portRules("n", 900, rulesEach-1), on(aRule(name), tcp(900)))...))}
	slices.Reverse(policies)
	s := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, policies...)
	d := s.Views[0].Decide(policytest.Name(name))
	open := d.Openings(60)
	if len(open) != policy.MaxOpenings || !d.Over || slices.ContainsFunc(open, func(o policy.Opening) bool { return o.Ports == "tcp/65" }) {
		t.Errorf("%d openings, over %v: %v", len(open), d.Over, open)
	}
	i := slices.IndexFunc(open, func(o policy.Opening) bool { return o.Ports == "tcp/1" })
	if i < 0 || len(open[i].By) != 2 || open[i].Lifetime != 2*time.Minute {
		t.Errorf("equal openings: %+v", open[max(i, 0)])
	}
	if w := policy.Decide(s.Views[0], policy.Query{Name: policytest.Name(name), Would: true}); !slices.ContainsFunc(w.Matches, func(m *policy.Match) bool { return m.Ports == "tcp/900" }) {
		t.Error("an Audit policy has no room of its own")
	}
	for text, over := range map[string]bool{"own66.test": false, "b.test": false, "c.test": false} {
		if d := s.Views[0].Decide(policytest.Name(text)); d.Over != over || !d.Allowed() {
			t.Errorf("%s: over %v, allowed %v", text, d.Over, d.Allowed())
		}
	}
	var got []string
	for _, p := range s.Problems {
		got = append(got, fmt.Sprint(p.Object, " ", p.Reason, " ", p.Path, " ", p.Message))
	}
	const why = "nothing for names of a.test and pod shop/web: the policies that select it open them on more than 64 different sets of ports, or with as many different ttl, together; " +
		"give rules the same ports and ttl, or a range for several"
	diff.Error(t, []string{
		"policy shop/p2 PartiallyInvalid spec.egress[0] this rule and 2 more of the policy open " + why,
		"policy shop/p4 PartiallyInvalid spec.egress[0] this rule opens " + strings.Replace(why, "a.test", "*.test", 1),
	}, got)
}

func TestLabelsOfPatternsAreBounded(t *testing.T) {
	var policies []*v1alpha1.FQDNNetworkPolicy
	deep := strings.Repeat("a.", 62) + "*.b.test" // 65 labels
	for i := range 2 {
		p := aPolicy(fmt.Sprintf("p%d", i), "")
		for range rulesEach {
			p.Spec.Egress = append(p.Spec.Egress, aRule(slices.Repeat([]string{deep}, 20)...))
		}
		policies = append(policies, p)
	}
	policies[1].Spec.Egress = append(policies[1].Spec.Egress[:rulesEach-1], aRule("exact.test"))
	s := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, policies...)
	labels := 0
	for r := range s.Views[0].Rules.All() {
		for _, m := range r.Matches {
			labels += m.Pattern.WildLabels()
		}
	}
	if labels > MaxViewLabels || labels < MaxViewLabels-20*65 {
		t.Errorf("%d labels", labels)
	}
	if len(s.Problems) != 1 || s.Problems[0].Object != "policy shop/p1" || !strings.Contains(s.Problems[0].Message, "65536 labels in patterns") {
		t.Errorf("problems %v", s.Problems)
	}
	if !s.Views[0].Decide(policytest.Name("exact.test")).Allowed() {
		t.Error("a rule for which there is room is left out")
	}
}

// TestBoundsFollowChanges: the rules beyond a bound depend only on the current policies.
func TestBoundsFollowChanges(t *testing.T) {
	c := New()
	in := Input{Pods: []policy.Pod{aPod("web", "x", "10.0.0.1")}}
	for i := range 9 {
		in.Policies = append(in.Policies, aPolicy(fmt.Sprintf("p%d", i), "", portRules("n", 1+i*rulesEach, rulesEach)...))
	}
	last := policytest.Name("n288.test")
	for round, allowed := range []bool{false, true, false} {
		now := in
		if allowed {
			now.Policies = in.Policies[1:]
		}
		s := c.Compile(now)
		if s.Views[0].Decide(last).Allowed() != allowed || (len(s.Problems) == 0) != allowed {
			t.Errorf("round %d: problems %v", round, s.Problems)
		}
		if again := c.Compile(now); len(again.Problems) != len(s.Problems) {
			t.Errorf("round %d: without a change %d problems are %d", round, len(s.Problems), len(again.Problems))
		}
	}
}

func BenchmarkCompileOverlapping(b *testing.B) {
	for _, policies := range []int{1, 3, 8} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			in := Input{Policies: overlapping(policies), Pods: []policy.Pod{aPod("web", "x", "10.0.0.1")}}
			for b.Loop() {
				New().Compile(in)
			}
		})
	}
}

// TestAcceptsOfClusterPoliciesAreBounded: of the rules that accept one name the first count, in the order of
// evaluation, whatever the subjects of their policies are; rules that deny always do. Where rules with the same
// subject are too many, their policy says so.
func TestAcceptsOfClusterPoliciesAreBounded(t *testing.T) {
	rules := func(first, n int) string {
		var texts []string
		for i := range n {
			texts = append(texts, fmt.Sprintf("{action: Accept, matches: [{pattern: '**.test'}, {name: own.other}], ports: [{protocol: TCP, port: %d}]}", first+i))
		}
		return strings.Join(texts, ", ")
	}
	const deny = "{action: Deny, matches: [{name: a.test}], ports: [{protocol: TCP, port: 22}]}"
	for what, subject := range map[string]string{"one subject": everyPod, "two subjects": "subject: {namespaces: {matchExpressions: [{key: none, operator: DoesNotExist}]}}"} {
		in := besideInput(nil)
		in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
			aCluster(t, "z-first", "{tier: Admin, priority: 1, "+everyPod+", egress: ["+rules(100, 50)+"]}"),
			aCluster(t, "a-second", "{tier: Admin, priority: 2, "+subject+", egress: ["+rules(200, 20)+", "+deny+"]}"),
			aCluster(t, "watched", "{tier: Admin, priority: 0, enforcement: Audit, "+everyPod+", egress: ["+rules(300, 20)+"]}"),
		}
		s := New().Compile(in)
		v := s.Views[0]
		for name, denied := range map[string]int{"a.test": 1, "own.other": 0} {
			d := v.Decide(policytest.Name(name))
			open := d.Openings(60)
			if len(open) != policy.MaxOpenings+denied || !d.Over || denied > 0 && open[0].Ports != "tcp/22" || !d.Allowed() {
				t.Errorf("%s, %s: %d openings, over %v", what, name, len(open), d.Over)
			}
			for _, o := range open {
				if !o.Rule.Lasting() && o.Ports >= "tcp/214" {
					t.Errorf("%s, %s: open on %s, which comes later", what, name, o.Ports)
				}
			}
		}
		var got []string
		for _, p := range s.Problems {
			if p.Reason == policy.ReasonNoRoom {
				got = append(got, fmt.Sprint(p.Object, " ", p.Path, " ", p.Message))
			}
		}
		want := []string{"clusterpolicy a-second spec.egress[14] this rule and 5 more of the policy open nothing for names of **.test: " +
			"cluster policies accept them by more than 64 rules with the same subject; write fewer rules, or a range of ports for several"}
		if subject != everyPod {
			want = nil
		}
		diff.Error(t, want, got, what)
	}
}
