package scenarios

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// catchAlls is a shell that adds an element for every other key to each set and map of our
// tables that the kernel does not fill by itself; the verdict maps accept everything then.
// The program nft cannot add one to sets of ranges.
const catchAlls = `for t in namegate namegate-net; do nft -t list table inet $t 2>/dev/null | awk -v t=$t '
	$1 == "set" || $1 == "map" { what = $1; name = $2; type = ""; skip = name ~ /^(alive|named)/ }
	$1 == "type" { type = $0; sub(/^[ \t]*type /, "", type) }
	$1 == "flags" && /interval|dynamic/ { skip = 1 }
	$1 == "}" && type != "" && !skip {
		value = ""
		if (what == "map") {
			split(type, parts, " : ")
			value = " : accept"
			if (parts[2] == "ipv4_addr") value = " : 203.0.113.1"
			if (parts[2] == "ipv6_addr") value = " : 2001:db8:7::1"
			if (parts[2] == "ipv4_addr . inet_service") value = " : 203.0.113.1 . 53"
			if (parts[2] == "ipv6_addr . inet_service") value = " : 2001:db8:7::1 . 53"
		}
		print "add element inet " t " " name " { *" value " }"
	}
	$1 == "}" { type = "" }'
done | nft -f -`

const acceptsAndDenies = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: ordered}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Deny
    matches: [{name: denied.example.org}]
  - action: Accept
    matches: [{name: accepted.example.net}]
    ports: [{protocol: TCP, port: 80}]
  dns: {denied: Resolve}
`

// TestCatchAllElements: elements that another program adds for every key to our sets and maps
// are removed, while the agent runs and by the next one. The status answers with such an element
// too.
func TestCatchAllElements(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			www.example.org. 600 IN A 198.51.100.1
			denied.example.org. 600 IN A 198.51.100.3
			accepted.example.net. 600 IN A 198.51.100.4`)
		s.startClient(policy("www", strings.Replace(allowWWW, "{name: www.example.org}", "{name: www.example.org}, {name: denied.example.org}", 1)) + "---" + acceptsAndDenies)
		for _, name := range []string{"www.example.org", "denied.example.org", "accepted.example.net"} {
			s.resolve("a", name, dns.TypeA)
		}
		held := func() int {
			return strings.Count(s.prints("nft list ruleset"), "*")
		}
		for _, agent := range []string{"runs", "starts"} {
			if agent == "starts" {
				fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			}
			run(t, s.Node, "sh", "-c", catchAlls)
			if agent == "starts" {
				if held() == 0 {
					t.Fatal("no element was added: this proves nothing")
				}
				fatal.If(t, s.agent.Start())
			}
			began := time.Now()
			for held() > 0 {
				if time.Since(began) > comeback {
					t.Fatalf("while the agent %s: elements are left:\n%s", agent, s.prints("nft list ruleset"))
				}
				time.Sleep(50 * time.Millisecond)
			}
			s.eventually("a", "198.51.100.1:80", lab.Answered)
			s.eventually("a", "198.51.100.2:80", lab.Refused)
			s.eventually("a", "198.51.100.3:80", lab.Refused)
			s.eventually("a", "198.51.100.4:80", lab.Answered)
		}
		// The kernel fills this set, and ends what is in it after minutes.
		run(t, s.Node, "nft", "add", "element", "inet", "namegate", "bypassing4", "{ * }")
		s.status()
	})
}
