package scenarios

import (
	"fmt"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

const leadsInOrder = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: leads}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Deny
    matches: [{name: denied.test}]
    ports: [{protocol: TCP, port: 80}, {protocol: UDP, port: 80}]
  - action: Accept
    matches: [{name: accepted.test}]
    ports: [{port: 80}, {port: 81}]
  - action: Deny
    networks: [198.51.100.0/24, "2001:db8:1::/64"]
`

// TestNamesThatLeadInAnyOrder: where a denied and an accepted name lead to one, its addresses
// are denied on the ports of the one and accepted on those of the other, in whatever order the
// pod asks.
func TestNamesThatLeadInAnyOrder(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`
			denied.test. 600 IN SRV 0 0 80 host.test.
			accepted.test. 600 IN SRV 0 0 80 host.test.
			host.test. 600 IN A 198.51.100.5
			host.test. 600 IN AAAA 2001:db8:1::5`)
		names := []string{"denied.test", "accepted.test", "host.test"}
		orders := [][]int{{0, 1}, {1, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}}
		files := map[string]string{"policy.yaml": leadsInOrder}
		for i := range orders {
			name := fmt.Sprintf("p%d", i)
			files[name+".yaml"] = s.addPod(name, 10+i).Manifest("shop", name, nil)
		}
		s.start(files)
		for i, order := range orders {
			pod := fmt.Sprintf("p%d", i)
			for _, at := range append(slices.Clone(order), 2) {
				for _, qtype := range map[bool][]uint16{false: {dns.TypeSRV}, true: {dns.TypeA, dns.TypeAAAA}}[at == 2] {
					if r, err := s.ask(pod, "udp", names[at], qtype); err != nil || len(r.Answer) != 1 {
						t.Fatalf("%s: %v, %v", names[at], r, err)
					}
				}
			}
			for _, to := range []string{"198.51.100.5", "[2001:db8:1::5]"} {
				s.expect(pod, "tcp", to+":80", lab.Refused)
				s.expect(pod, "udp", to+":80", lab.Refused)
				s.expect(pod, "tcp", to+":81", lab.Answered)
				s.expect(pod, "udp", to+":81", lab.Answered)
				s.expect(pod, "tcp", to+":443", lab.Refused)
			}
			if t.Failed() {
				t.Fatalf("in the order %v", order)
			}
		}
	})
}
