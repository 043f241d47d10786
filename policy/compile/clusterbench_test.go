package compile

import (
	"fmt"
	"maps"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// clusterLoad adds cluster policies of that many rules in all to a load: most select every
// pod, a fifth those of a team of namespaces, and a tenth those of one app.
func clusterLoad(b testing.TB, policies, pods, namespaces, rules, each int) Input {
	in := load(policies, pods, namespaces)
	in.Namespaces = map[string]map[string]string{}
	for i := range namespaces {
		in.Namespaces[fmt.Sprintf("ns%d", i)] = map[string]string{"team": fmt.Sprintf("t%d", i%5)}
	}
	for i := range rules / each {
		subject := "{namespaces: {}}"
		switch {
		case i%10 == 1:
			subject = fmt.Sprintf("{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: app%d}}}}", i/10%5)
		case i%5 == 0:
			subject = fmt.Sprintf("{namespaces: {matchLabels: {team: t%d}}}", i/5%5)
		}
		p := aCluster(b, fmt.Sprintf("cluster-%04d", i), fmt.Sprintf("{tier: %s, priority: %d, subject: %s}", []string{"Admin", "Baseline"}[i%2], i%1000, subject))
		for j := range each {
			n := i*each + j
			rule := v1alpha1.ClusterEgressRule{Action: []v1alpha1.Action{v1alpha1.ActionDeny, v1alpha1.ActionAccept, v1alpha1.ActionPass}[n%3]}
			if n%4 == 0 {
				rule.Networks = []v1alpha1.Network{v1alpha1.Network(fmt.Sprintf("192.%d.%d.0/24", n>>8, n&255))}
			} else {
				rule.Matches = aRule(fmt.Sprintf("name%d.example.com", n), fmt.Sprintf("**.zone%d.example.com", n)).Matches
			}
			p.Spec.Egress = append(p.Spec.Egress, rule)
		}
		in.ClusterPolicies = append(in.ClusterPolicies, p)
	}
	return in
}

// BenchmarkCompileCluster: 250 pods under 1,000 cluster rules, beside 10,000 namespaced
// policies: everything anew, one cluster policy changed, one namespace given other labels,
// and one namespaced policy changed.
func BenchmarkCompileCluster(b *testing.B) {
	for _, namespaces := range []int{50, 250, 1} {
		for _, each := range []int{1, 10} {
			in := clusterLoad(b, 10000, 250, namespaces, 1000, each)
			run := func(name string, change func(i int)) {
				b.Run(fmt.Sprintf("namespaces=%d/rules-each=%d/%s", namespaces, each, name), func(b *testing.B) {
					c := New()
					c.Compile(in)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if change == nil {
							c = New()
						} else {
							change(i)
						}
						c.Compile(in)
					}
				})
			}
			run("all", nil)
			was := in.ClusterPolicies[7]
			run("policy", func(i int) {
				p := was.DeepCopy()
				p.Spec.Egress[0].Matches = aRule(fmt.Sprintf("changed%d.test", i)).Matches
				in.ClusterPolicies[7] = p
			})
			before := in.Namespaces
			run("namespace", func(i int) {
				in.Namespaces = maps.Clone(before)
				in.Namespaces["ns0"] = map[string]string{"team": fmt.Sprintf("t%d", i%5)}
			})
			rules := [][]v1alpha1.EgressRule{{aRule("one.example.org")}, {aRule("two.example.org")}}
			run("namespaced", func(i int) {
				p := *in.Policies[777]
				p.Spec.Egress = rules[i%2]
				in.Policies[777] = &p
			})
		}
	}
}
