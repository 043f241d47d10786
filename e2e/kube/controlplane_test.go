package kube

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// antreaNodes is the example of Antrea's documentation for policies of nodes.
const antreaNodes = "../../console/convert/testdata/field/antrea-nodes.yaml"

// silent is the outcome of connections whose packets are dropped.
var silent = want{probe.Timeout}

// testControlPlane: the policy of Antrea's documentation for nodes of the control plane, converted, leaves the API
// server of a node to one network and to the nodes of the cluster, and closes all else. The node works.
func testControlPlane(t *testing.T) {
	s := begin(t, "controlplane")
	n := the.Node("node-a")
	s.run(pod("own-node-a", n.Name, nil), pod("own-node-b", "node-b", nil), onHost(pod("host", n.Name, nil, "serve", "host", "8090")))
	s.apiServerOnNode(n)
	s.kubectl("label", "node", n.Name, "node-role.kubernetes.io/control-plane=")
	t.Cleanup(func() { s.kubectl("label", "node", n.Name, "node-role.kubernetes.io/control-plane-") })
	// What the policy says is told apart from what failsafes say of each probe.
	probes := []struct {
		from string
		port uint16
		w    want
	}{
		{"10.0.0.5", 6443, works},
		{"198.51.100.5", 6443, silent},
		{"2001:db8::5", 6443, silent},
		{"host-node-b", 6443, works},
		{"own-node-b", 6443, silent},
		{"own-node-a", 6443, silent},
		{"10.0.0.5", 8090, silent},
		{"host-node-b", 8090, silent},
		{"own-node-b", 8090, silent},
		{"host-node-a", 8090, works},
		{"203.0.113.5", 22, want{probe.Refused}}, // a failsafe, which no program serves
	}
	addresses := s.addresses("host")
	all := func(expected func(i int) want) error {
		var tries []func() error
		for i, p := range probes {
			for _, a := range addresses {
				to := netip.AddrPortFrom(netip.MustParseAddr(a), p.port)
				if from, err := netip.ParseAddr(p.from); err == nil && from.Is4() != to.Addr().Is4() {
					continue
				}
				tries = append(tries, func() error { return s.outcome(p.from, to.String(), expected(i)) })
			}
		}
		return atOnce(tries)
	}
	open := func(i int) want {
		if probes[i].port == 22 {
			return probes[i].w
		}
		return want{probe.OK, probe.Reset} // an API server does not echo what a pod says
	}
	s.eventually(soon, "the node without a policy", func() error { return all(open) })
	converted, code, said := s.namegate("convert", antreaNodes)
	diff.Equal(t, 0, code, "exit code of convert", said)
	s.temporary("nnp", "control-plane", converted)
	s.eventually(soon, "the converted policy", func() error { return all(func(i int) want { return probes[i].w }) })
	for _, node := range nodes {
		fatal.If(t, s.nodeWorks(node))
		s.gets("own-"+node, "tcp", "www.example.org", 80, works)
		s.hostDials(node, raw, works)
	}
	_, err := n.Kubectl(s.ctx, "", "logs", "-n", s.ns, "own-node-b")
	fatal.If(t, err)
	s.kubectl("delete", "nnp", "control-plane")
	s.eventually(soon, "the node after the policy", func() error { return all(open) })
}
