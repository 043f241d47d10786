package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/agent/failsafes"
	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/failsafe"
)

// keeperFake keeps what it is given.
type keeperFake struct {
	cluster failsafes.Cluster
	learned map[string][]netip.Addr
}

func (k *keeperFake) SetCluster(c failsafes.Cluster) { k.cluster = c }
func (k *keeperFake) Learn(host string, addrs []netip.Addr) {
	k.learned = map[string][]netip.Addr{host: addrs}
}
func (k *keeperFake) SetCorefile(failsafes.Corefile)                  {}
func (k *keeperFake) Run(context.Context, func(*failsafe.List)) error { return nil }
func (k *keeperFake) list(findings ...failsafe.Finding) *failsafe.List {
	return &failsafe.List{Entries: k.entries(), Findings: findings}
}
func (k *keeperFake) entries() []failsafe.Entry {
	to := failsafe.Target{Ports: failsafe.Port(policy.TCP, 6443), Reason: "API server", Source: "test"}
	return append(failsafe.Fixed(), to.At(netip.MustParseAddr("192.0.2.10")))
}

// TestHostNode: no state is offered before the failsafes are known. Each change of the node
// offers the last state with the changed node, and a state without a change has the same node.
func TestHostNode(t *testing.T) {
	var offers []rollout.State
	var has []netip.Addr
	var fails error
	keeper := &keeperFake{}
	h := &hostNode{name: "n1", resolvers: func([]netip.Addr) {}, keeper: keeper, read: func() ([]netip.Addr, error) { return slices.Clone(has), fails },
		offer: func(s rollout.State) { offers = append(offers, s) }, log: slog.New(slog.DiscardHandler)}
	expect := func(count int) *policy.Node {
		t.Helper()
		if len(offers) != count {
			t.Fatalf("%d states were offered, want %d", len(offers), count)
		}
		if count == 0 {
			return nil
		}
		return offers[count-1].Input.Node
	}
	state := rollout.State{
		Cluster: policy.Cluster{Hosts: []*policy.Host{{Name: "n0", Labels: map[string]string{"role": "x"}}, {Name: "n1", Labels: map[string]string{"role": "edge"}}}},
		Input: compile.Input{Pods: []policy.Pod{
			{PodRef: policy.PodRef{Name: "own"}, IPs: addrs("10.1.0.5")}, {PodRef: policy.PodRef{Name: "far"}, NodeName: "n0", IPs: addrs("10.2.0.5")},
			{PodRef: policy.PodRef{Name: "host"}, HostNetwork: true, IPs: addrs("192.0.2.1")}, {PodRef: policy.PodRef{Name: "done"}, Phase: "Succeeded", IPs: addrs("10.1.0.6")},
		}},
	}
	has = addrs("192.0.2.1", "10.1.0.1", "192.0.2.1")
	h.poll()
	h.receive(state)
	expect(0)
	h.setFailsafes(keeper.list())
	n := expect(1)
	if n.Name != "n1" || n.Labels["role"] != "edge" || n.Unknown != "" || !slices.Equal(n.Addrs, addrs("10.1.0.1", "192.0.2.1")) {
		t.Errorf("%+v", n)
	}
	if !slices.ContainsFunc(n.Failsafes, func(f policy.Failsafe) bool { return f.Reason == "API server" }) {
		t.Errorf("failsafes %v", n.Failsafes)
	}
	for _, f := range n.Failsafes {
		if !f.Prefix.IsValid() || f.Reason == "DHCP" { // its entry has a condition
			t.Errorf("%s %s opens destinations without its condition", &f, f.Reason)
		}
	}
	if !slices.Equal(keeper.cluster.Pods, addrs("10.1.0.5")) {
		t.Errorf("pods of the node: %v", keeper.cluster.Pods)
	}
	h.setFailsafes(keeper.list())
	h.poll()
	expect(1)
	h.receive(state)
	if expect(2) != n {
		t.Error("an equal node is another one")
	}
	has = addrs("192.0.2.1")
	h.poll()
	if n = expect(3); !slices.Equal(n.Addrs, addrs("192.0.2.1")) {
		t.Errorf("addresses %v", n.Addrs)
	}
	has, fails = nil, errors.New("the kernel is busy")
	h.poll()
	expect(3)
	h.setFailsafes(keeper.list(failsafe.Finding{Source: "kubelet", Message: "stale", Stale: true}, failsafe.Finding{Source: "time", Message: "not readable"}))
	if n = expect(4); n.Unknown != "time: not readable" || !slices.Equal(n.Addrs, addrs("192.0.2.1")) {
		t.Errorf("unknown %q, addresses %v", n.Unknown, n.Addrs)
	}
}
