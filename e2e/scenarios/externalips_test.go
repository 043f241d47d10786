package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// TestClaimedRegistry: a tenant's Service claims the address of a registry that a neighbour uses, by
// spec.externalIPs. The neighbour's answers have the address, and its connections go on; status names the Service.
func TestClaimedRegistry(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		const at = "203.0.113.10:6443"
		api := serveAPI(t, s.World, at)
		api.set(t, "nodes", "metadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.168.77.1}]}\n")
		api.set(t, "namespaces", "metadata: {name: shop}\n", "metadata: {name: evil}\n")
		api.set(t, "pods", fmt.Sprintf("metadata: {namespace: shop, name: a, labels: {app: client}}\nspec: {nodeName: n1, containers: []}\nstatus: {phase: Running, podIPs: [{ip: %q}, {ip: %q}]}\n", s.Pod("a").Addr4, s.Pod("a").Addr6))
		api.set(t, "fqdnnetworkpolicies", policy("registry", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: '*.registry.test'}]"))
		config := filepath.Join(t.TempDir(), "kubeconfig")
		fatal.If(t, os.WriteFile(config, []byte(kubeconfigFor(at)), 0o600))
		var err error
		s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile, append(kind.args(), "--source", "kube", "--kubeconfig", config, "--node-name", "n1", "--namespace", "namegate", "--pod-name", "agent", "--daemonset", "namegate")...)
		fatal.If(t, err)
		s.zone.add("a.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN AAAA 2001:db8:1::1")
		s.start(nil)
		s.resolve("a", "a.registry.test", dns.TypeA)
		before := s.line("a", "tcp", netip.MustParseAddr("198.51.100.1"))

		api.set(t, "services", "metadata: {namespace: evil, name: thief}\nspec: {type: ClusterIP, clusterIP: 10.96.0.9, externalIPs: [198.51.100.1, '2001:db8:1::1'], ports: [{port: 443, protocol: TCP}]}\n")
		fatal.If(t, s.agent.WaitFor("the finding", func(got lab.Status) bool {
			for _, p := range got.Problems {
				if p.Reason == "ExternalIPs" && p.Object == "namespace evil" && strings.Contains(p.Message, "thief 198.51.100.1, thief 2001:db8:1::1") {
					return true
				}
			}
			return false
		}))
		s.goesOn("after the claim", before)
		for qtype, to := range map[uint16]string{dns.TypeA: "198.51.100.1:443", dns.TypeAAAA: "[2001:db8:1::1]:443"} {
			if got := s.resolve("a", "b.registry.test", qtype); len(got) != 1 {
				t.Errorf("b.registry.test has %v", got)
			}
			s.expect("a", "tcp", to, lab.Answered)
		}
	})
}
