package enforcer

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestFailedFirstRollOutKeepsTheNodesRules: the first snapshot of an agent may fail at any step. The
// rules of the node that the agent before it left stay in force.
func TestFailedFirstRollOutKeepsTheNodesRules(t *testing.T) {
	t.Parallel()
	eachPlane(t, testFailedFirstRollOutOfANode)
}

func testFailedFirstRollOutOfANode(t *testing.T, plane string) {
	closed := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}
	fatal.If(t, yaml.UnmarshalStrict([]byte("{tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}"), &closed.Spec))
	began := func() (*world, *policy.Snapshot) {
		w := newNode(t)
		w.plane = plane
		w.restart()
		compiled := func(policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
			return w.compiler.Compile(compile.Input{
				Pods: []policy.Pod{pod("web", "10.1.0.5", "allow")}, Policies: policies,
				ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{closed}, Node: &policy.Node{Name: "n1"},
			})
		}
		fatal.If(t, w.rollOut(compiled(pol("allow", "tcp/443 www.example.org"))))
		w.restart()
		return w, compiled(pol("allow", "tcp/8443 www.example.org"))
	}
	failed := 0
	for n := 1; n < maxSteps; n++ {
		w, next := began()
		w.seams.forget(n, false)
		err := w.rollOut(next)
		if w.seams.steps < n {
			break
		}
		if errors.Is(err, errInjected) {
			failed++
		}
		if w.inet.Table.Chains["node-output"] == nil || !strings.Contains(w.inet.Dump(), "goto node-rejected") {
			t.Errorf("step %d, %q, fails, and the node has no rules", n, w.seams.failed)
		}
	}
	if failed == 0 {
		t.Error("no step fails: the test does not see them")
	}
}
