package kube

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// taint keeps pods from a node until its agent is ready.
const taint = "namegate.io/agent-not-ready"

// testUninstall: a node that is not Namegate's any more, and at the end both, have
// no rule, set, table, address or taint of it left, and pods and nodes are free, although
// their policies are still there.
func testUninstall(t *testing.T) {
	s := begin(t, "uninstall")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil), pod("c", "node-a", nil, "serve", "c", "8080"), policy("one", `{podSelector: {}, egress: [{matches: [{name: www.example.org}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")

	s.eventually(patient, "the end of the taints", s.untainted) // those of before the installation
	s.shut("{}", "[eth0]", traffics...)
	local := net.JoinHostPort(s.addresses("c")[0], "8080") // no policy for the node judges it

	s.kubectl("label", "node", "node-a", "namegate.test/here=yes")
	s.helm("--set", `nodeSelector.namegate\.test/here=yes`)
	s.eventually(patient, "a clean node-b", func() error { return clean(the.Node("node-b")) })
	s.dials("b", "tcp", raw, works)
	s.dials("a", "tcp", local, denied)
	s.hostDials("node-b", raw, works)
	s.hostDials("node-a", raw, closedTo)
	fatal.If(t, s.outcome(outside[0], local, closedTo))
	s.eventually(soon, "the agent of node-a", func() error {
		if status, _, message := s.condition("one", "DNSBlocked"); status != "False" {
			return fmt.Errorf("DNSBlocked is %q: %s", status, message)
		}
		return nil
	})

	if _, err := the.Helm(s.ctx, "uninstall", release, "--namespace", namespace, "--wait", "--timeout", "120s"); err != nil {
		t.Fatal(err)
	}
	for _, n := range the.Nodes {
		s.eventually(patient, "a clean "+n.Name, func() error { return clean(n) })
		s.hostDials(n.Name, raw, works)
	}
	if err := s.untainted(); err != nil {
		t.Error(err)
	}
	for _, p := range []string{"a", "b"} {
		s.dials(p, "tcp", raw, works)
		s.dials(p, "tcp", local, works)
		s.gets(p, "tcp", "other.test", 80, works)
	}
	s.eventually(patient, "the end of what the agents had", func() error {
		left := s.kubectl("get", "leases,daemonsets,configmaps,serviceaccounts,pods,services,jobs", "-n", namespace, "-o", "name")
		if strings.Contains(left, "namegate") {
			return fmt.Errorf("left in %s:\n%s", namespace, left)
		}
		return nil
	})
	if left := s.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name"); strings.Contains(left, "namegate") {
		t.Errorf("left:\n%s", left)
	}
	s.kubectl("get", "fqdnnp", "-n", s.ns, "one") // what users wrote stays
	s.kubectl("get", "nnp", "shut-local")
}

func (s *scenario) untainted() error {
	if taints := s.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}"); strings.Contains(taints, "namegate.io") {
		return fmt.Errorf("taints: %s", taints)
	}
	return nil
}

// clean returns Namegate's objects on a node, nil if there are none.
func clean(n *cluster.Node) error {
	for _, look := range []struct{ program, args, trace string }{
		{"nft", "list tables", "namegate"},
		{"iptables-save", "", "NAMEGATE"},
		{"ip6tables-save", "", "NAMEGATE"},
		{"iptables-legacy-save", "", "NAMEGATE"},
		{"ip6tables-legacy-save", "", "NAMEGATE"},
		{"ipset", "list -n", "NG"},
		{"ip", "addr show", "169.254.20."},
		{"ip", "addr show", "fd5c:7a1e:93b4:"},
		{"ip", "link show", "namegate"},
	} {
		out, err := n.Run(look.program, strings.Fields(look.args)...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, look.trace) && !strings.HasPrefix(line, "#") {
				return fmt.Errorf("%s: %s %s: %s", n.Name, look.program, look.args, line)
			}
		}
	}
	return nil
}
