package scenarios

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

const allowWWW = `
podSelector: {matchLabels: {app: client}}
egress:
- matches: [{name: www.example.org}]
  ports: [{protocol: TCP, port: 80}]
`

// TestFirstSlice: on each network, with each of the two iptables and with nft alone.
func TestFirstSlice(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		t.Run(string(network), func(t *testing.T) {
			t.Parallel()
			eachBackend(t, network, firstSlice)
		})
	}
}

func firstSlice(t *testing.T, kind nodeKind) {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		www.example.org. 60 IN AAAA 2001:db8:1::1
		other.example.org. 60 IN A 198.51.100.2`)
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml":      s.Pod("b").Manifest("shop", "b", nil),
		"policy.yaml": policy("allow-www", allowWWW),
	})
	if got := s.resolve("a", "www.example.org", dns.TypeA); len(got) != 1 {
		t.Fatalf("www.example.org: %v", got)
	}
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	s.expect("a", "tcp", "198.51.100.1:81", lab.Refused)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.expect("a", "tcp", "[2001:db8:1::1]:80", lab.Answered)
	s.expect("a", "tcp", "[2001:db8:1::1]:81", lab.Refused)
	s.resolve("a", "other.example.org", dns.TypeA)
	s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	s.expect("a", "udp", "198.51.100.2:80", lab.Refused)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
	s.secondNetHolds("198.51.100.2:80")
}
