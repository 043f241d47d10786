package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

// TestManyPorts: a rule of more ports than one match of iptables takes allows each of
// them, the last as the first, and no other; a range counts as two.
func TestManyPorts(t *testing.T) {
	t.Parallel()
	var ports []string
	for p := 1; p < 60; p += 2 { // thirty, two matches full: 80 and 8080 are in further ones
		ports = append(ports, fmt.Sprintf("{protocol: TCP, port: %d}", p))
	}
	ports = append(ports, "{protocol: TCP, port: 80}")
	ranges := []string{"{protocol: TCP, port: 80}"}
	for p := 1000; p < 1160; p += 10 {
		ranges = append(ranges, fmt.Sprintf("{protocol: TCP, port: %d, endPort: %d}", p, p+5))
	}
	ranges = append(ranges, "{protocol: TCP, port: 8000, endPort: 8100}", "{protocol: UDP, port: 443}")
	eachBackend(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add("www.example.org. 60 IN A 198.51.100.1\nwww.example.org. 60 IN AAAA 2001:db8::1\nmany.example.org. 60 IN A 198.51.100.3")
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"p.yaml": policy("ports", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{name: www.example.org}]\n  ports: ["+strings.Join(ranges, ", ")+
				"]\n- matches: [{name: many.example.org}]\n  ports: ["+strings.Join(ports, ", ")+"]"),
		})
		s.resolve("a", "www.example.org", dns.TypeA)
		s.resolve("a", "www.example.org", dns.TypeAAAA)
		s.resolve("a", "many.example.org", dns.TypeA)
		for _, host := range []string{"198.51.100.1", "[2001:db8::1]"} {
			s.expect("a", "tcp", host+":80", lab.Answered)
			s.expect("a", "tcp", host+":8080", lab.Answered)
			s.expect("a", "tcp", host+":81", lab.Refused)
			s.expect("a", "tcp", host+":443", lab.Refused)
			s.expect("a", "udp", host+":443", lab.Answered)
			s.expect("a", "udp", host+":80", lab.Refused)
		}
		s.expect("a", "tcp", "198.51.100.3:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.3:81", lab.Refused)
		s.expect("a", "tcp", "198.51.100.3:8080", lab.Refused)
	})
}
