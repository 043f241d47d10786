package compile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// manyOf is policies with MaxViewMatches matches that cover one name.
func manyOf(pattern func(i int) string, ports int) []*v1alpha1.FQDNNetworkPolicy {
	var out []*v1alpha1.FQDNNetworkPolicy
	for k := range MaxViewMatches / rulesEach / matchesEach {
		p := aPolicy(fmt.Sprintf("p%03d", k), "")
		for r := range rulesEach {
			var texts []string
			for m := range matchesEach {
				texts = append(texts, pattern((k*rulesEach+r)*matchesEach+m))
			}
			p.Spec.Egress = append(p.Spec.Egress, on(aRule(texts...), tcp(int32(1+(k*rulesEach+r)%ports))))
		}
		out = append(out, p)
	}
	return out
}

func BenchmarkManyMatches(b *testing.B) {
	long := strings.Repeat("a", 60)
	var globs []string
	for i := 1; i < 60; i++ {
		for j := 1; i+j < 60; j++ {
			globs = append(globs, long[:i]+"*"+long[:j])
		}
	}
	for name, pattern := range map[string]func(int) string{
		"exact": func(int) string { return long + ".n7.test" },
		"star":  func(int) string { return "*.n7.test" },
		"globs": func(at int) string {
			return globs[at%len(globs)] + "." + []string{"n*", "*n*", "*", "n7*", "*7"}[at/len(globs)%5] + ".test"
		},
	} {
		for _, ports := range []int{1, 256} {
			s := New().Compile(Input{Policies: manyOf(pattern, ports), Pods: []policy.Pod{aPod("web", "x", "10.0.0.1")}})
			v := s.Views[0]
			n := policytest.Name(long + ".n7.test")
			run := func(what string, f func()) {
				b.Run(fmt.Sprintf("%s/ports=%d/%s", name, ports, what), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
				})
			}
			run("Decide", func() { v.Decide(n) })
			d := v.Decide(n)
			b.Log(len(d.Matches), len(d.Openings(60)))
			run("Openings", func() { d.Openings(60) })
			run("LongestTTL", func() { d.LongestTTL() })
		}
	}
}
