package scenarios

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

var networks = []lab.Network{lab.Routed, lab.Bridged}

// onEach runs a test in a lab of each kind of network, side by side with others.
func onEach(t *testing.T, f func(t *testing.T, network lab.Network)) {
	for _, n := range networks {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			f(t, n)
		})
	}
}

const allowWWW = `
podSelector: {matchLabels: {app: client}}
egress:
- matches: [{name: www.example.org}]
  ports: [{protocol: TCP, port: 80}]
`

// TestFirstSlice: on each network, and with each of the two iptables.
func TestFirstSlice(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, network lab.Network) { firstSlice(t, network, variant) })
		})
	}
}

func firstSlice(t *testing.T, network lab.Network, variant string) {
	s := newStage(t, network)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		www.example.org. 60 IN AAAA 2001:db8:1::1
		other.example.org. 60 IN A 198.51.100.2`)
	var err error
	s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile, "--iptables", variant)
	fatal.If(t, err)
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
