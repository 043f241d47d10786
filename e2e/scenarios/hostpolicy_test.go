package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// hostNode is the Node object of the lab's node.
const hostNode = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {role: edge}}\n"

// hostPolicy is a cluster policy for the node; egress is YAML in flow style.
func hostPolicy(egress string) string {
	return fmt.Sprintf("apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: hosts}\nspec: {tier: Admin, priority: 1, subject: {nodes: {matchLabels: {role: edge}}}, egress: %s}\n", egress)
}

// newHostStage is newStageOf with an agent that enforces policies for its node, and lines in its Corefile.
func newHostStage(t *testing.T, kind nodeKind, lines string) *stage {
	t.Helper()
	s := newStageOf(t, kind)
	s.hostAsks(lab.Resolver4, lab.Resolver6)
	file := filepath.Join(s.agent.Dir, "Corefile")
	text, err := os.ReadFile(file)
	fatal.If(t, err)
	fatal.If(t, os.WriteFile(file, []byte(strings.Replace(string(text), "grant timeout", lines+"\n    grant timeout", 1)), 0o644))
	s.agent.Use(agentBinary, append(kind.args(), "--nodes", "--node-name", "node-1", "--resolv-conf", filepath.Join(s.agent.Dir, "resolv.conf"))...)
	return s
}

// hostAsks writes the resolvers of the host.
func (s *stage) hostAsks(resolvers ...netip.Addr) {
	s.t.Helper()
	text := ""
	for _, r := range resolvers {
		text += fmt.Sprintf("nameserver %s\n", r)
	}
	fatal.If(s.t, os.WriteFile(filepath.Join(s.agent.Dir, "resolv.conf"), []byte(text), 0o644))
}

// hostExpects probes from the node and asserts the outcome.
func (s *stage) hostExpects(network, to string, want lab.Outcome) {
	s.t.Helper()
	diff.Equal(s.t, want, s.Node.ProbeFor(network, netip.MustParseAddrPort(to), lab.PatienceFor(want)), "the node to", network, to)
}

// TestHostPolicy: a policy for the node judges the connections of its own sockets and no other
// packets, stays in force without an agent, and leaves nothing when it goes.
func TestHostPolicy(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newHostStage(t, kind, "")
		pod := s.Pod("a")
		s.serve(pod.Host, 80)
		s.serve(s.Node, 8080)
		s.start(map[string]string{"node.yaml": hostNode, "a.yaml": pod.Manifest("shop", "a", nil)})
		raw := []string{"198.51.100.1:80", "[2001:db8:1::1]:80"}
		both := func(when string, want lab.Outcome) {
			t.Helper()
			for _, to := range raw {
				for _, network := range []string{"tcp", "udp"} {
					s.hostExpects(network, to, want)
				}
				s.expect("a", "tcp", to, lab.Answered)
			}
			if t.Failed() {
				t.Fatal(when)
			}
		}
		both("without a policy", lab.Answered)
		s.apply(map[string]string{"policy.yaml": hostPolicy(`[{action: Accept, networks: [198.51.100.2/32, "2001:db8:1::2/128"], ports: [{protocol: TCP, port: 80}]}, {action: Deny}]`)})
		both("by the policy", lab.Refused)
		s.hostExpects("tcp", "198.51.100.2:80", lab.Answered)
		s.hostExpects("tcp", "[2001:db8:1::2]:80", lab.Answered)
		s.hostExpects("tcp", "198.51.100.2:81", lab.Refused)
		// Failsafes: the pods of the node, and the resolvers of the host.
		s.hostExpects("tcp", netip.AddrPortFrom(pod.Addr4, 80).String(), lab.Answered)
		s.hostExpects("tcp", netip.AddrPortFrom(pod.Addr6, 80).String(), lab.Answered)
		for _, r := range []netip.Addr{lab.Resolver4, lab.Resolver6} {
			c, err := s.Node.Dial("tcp", netip.AddrPortFrom(r, 53).String(), lab.Limit)
			if err != nil {
				t.Errorf("the node to its resolver: %v", err)
				continue
			}
			c.Close()
		}
		s.hostExpects("tcp", "127.0.0.1:8080", lab.Answered)
		fatal.If(t, s.agent.Upgrade())
		both("by the next agent", lab.Refused)
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		both("without an agent", lab.Refused)
		fatal.If(t, s.agent.Begin())
		both("while an agent starts", lab.Refused)
		fatal.If(t, s.agent.WaitFor("its policies", func(st lab.Status) bool { return st.InSync && st.Enforcer.Intercepting }))
		both("by an agent that started", lab.Refused)
		s.apply(map[string]string{"policy.yaml": ""})
		both("without the policy", lab.Answered)
		rules := run(t, s.Node, "nft", "list", "chains")
		if strings.Contains(rules, "node-") {
			t.Errorf("chains of the node are left:\n%s", rules)
		}
	})
}
