package enforcer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// TestAConnectionOfTheNodeIsUse: an address stays open for the node while a connection of the node to it is
// active, although such connections have no admission. Connections of pods that no policy selects have none
// either, and do not count.
func TestAConnectionOfTheNodeIsUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := clusterPolicy(t, "nodes", "{tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Accept, matches: [{name: www.test}], ports: [{protocol: TCP, port: 443}]}, {action: Deny}]}")
	var inUse []policy.NameInUse
	w.e.grants.OnInUse(func(names []policy.NameInUse) { inUse = append(inUse, names...) })
	s := compile.New().Compile(compile.Input{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}, Node: &policy.Node{Name: "n1", Addrs: addrs("198.51.100.1 2001:db8::100")}})
	fatal.If(t, w.rollOut(s))
	node := policy.NodeRef("n1")
	gs := w.grants(s, node, "www.test", 60, "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1")
	gs[0].Rule = s.Node().Rules.Admin[0].ID
	fatal.If(t, granttest.Grant(context.Background(), w.e.grants, gs))
	for _, f := range []conntrack.Flow{flow("198.51.100.1:1001", "192.0.2.1:443"), flow("10.1.0.9:1001", "192.0.2.2:443"), flow("198.51.100.1:1002", "192.0.2.3:80"), flow("[2001:db8::100]:1001", "[2001:db8::1]:443")} {
		f.Mark = 0
		w.flows.Track(f)
		w.flows.Establish(f, 20*time.Second)
	}
	for range 20 {
		w.expire(10 * time.Second)
	}
	var due []string
	for _, n := range inUse {
		for _, a := range n.Due {
			due = append(due, a.String())
		}
	}
	slices.Sort(due)
	if want := []string{"192.0.2.1", "2001:db8::1"}; !slices.Equal(slices.Compact(due), want) {
		t.Errorf("in use: %v, want %v", due, want)
	}
}
