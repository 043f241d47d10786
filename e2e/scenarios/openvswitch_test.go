package scenarios

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// TestOpenVSwitch: pods are ports of a switch of Open vSwitch, and netfilter sees only packets
// that leave it. Policies are enforced on these, connections between pods are not judged, and
// the agent says that in its log, its status, explain and the metrics.
func TestOpenVSwitch(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Switched, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`www.example.org. 600 IN A 198.51.100.1`)
		s.zone.add(`www.example.org. 600 IN AAAA 2001:db8:51::1`)
		s.serve(s.Pod("b").Host, 80)
		s.startClient(policy("www", allowWWW))

		// Outside the switch: names open their addresses, and nothing else is reached.
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if got := s.resolve("a", "www.example.org", qtype); len(got) != 1 {
				t.Fatalf("answer %v", got)
			}
		}
		s.both("a", "tcp", "198.51.100.1", "2001:db8:51::1", 80, lab.Answered)
		s.both("a", "tcp", "198.51.100.1", "2001:db8:51::1", 81, lab.Refused)
		s.both("a", "tcp", "198.51.100.2", "2001:db8:51::2", 80, lab.Refused)
		s.both("a", "udp", "198.51.100.2", "2001:db8:51::2", 80, lab.Refused)
		// Inside it: no rule allows the pod b, and it is reached.
		s.both("a", "tcp", s.Pod("b").Addr4.String(), s.Pod("b").Addr6.String(), 80, lab.Answered)

		says := "a switch that netfilter does not see"
		for _, a := range []string{s.Pod("a").Addr4.String(), s.Pod("a").Addr6.String()} {
			s.says(0, "half enforced|"+a+": "+says+" connects it; only what leaves the switch by br0 is judged", "status")
		}
		s.says(0, says+"|Open vSwitch|by the interface br0", "explain", "shop/a", "www.example.org:80")
	})
}
