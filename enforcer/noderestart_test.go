package enforcer

import (
	"errors"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestFailedFirstRollOutKeepsTheNodesRules: the first snapshot of an agent may fail at any step. The
// rules of the node that the agent before it left stay in force.
func TestFailedFirstRollOutKeepsTheNodesRules(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		failed := 0
		eachFault(t, 2, false, func() (*world, func() error) {
			w := newWorldOn(t, plane)
			compiled := func(allow *v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
				return w.compiler.Compile(compile.Input{
					Pods: []policy.Pod{pod("web", "10.1.0.5", "allow")}, Policies: []*v1alpha1.FQDNNetworkPolicy{allow}, Node: &policy.Node{Name: "n1"},
					ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{clusterPolicy(t, "nodes", "{tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}")},
				})
			}
			fatal.If(t, w.rollOut(compiled(pol("allow", "tcp/443 www.example.org"))))
			w.restart()
			return w, func() error { return w.rollOut(compiled(pol("allow", "tcp/8443 www.example.org"))) }
		}, func(f fault) {
			if errors.Is(f.err, errInjected) {
				failed++
			}
			if f.inet.Table.Chains["node-output"] == nil || !strings.Contains(f.inet.Dump(), "goto node-rejected") {
				t.Errorf("%s, and the node has no rules", f.when)
			}
		})
		if failed == 0 {
			t.Error("no step fails: the test does not see them")
		}
	})
}
