package scenarios

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestClaimedRegistry: a tenant's Service claims the address of a registry that a neighbour uses, by
// spec.externalIPs. The neighbour's answers have the address, and its connections go on; status names the Service.
func TestClaimedRegistry(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		const at = "203.0.113.10:6443"
		api := serveAPI(t, s.World, at)
		api.set(t, "fqdnnetworkpolicies", policy("registry", "podSelector: {matchLabels: {app: a}}\negress:\n- matches: [{pattern: '*.registry.test'}]"))
		s.zone.add("a.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN A 198.51.100.1\nb.registry.test. 60 IN AAAA 2001:db8:1::1")
		s.startOnAPI(kind, api, at, corefile, "a")
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
