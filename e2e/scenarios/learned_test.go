package scenarios

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

const deniedAnswer = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: denied}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Deny
    matches: [{name: denied.test}]
  dns: {denied: NXDomain}
`

// TestDeniedAddressesThatAreKnown: a pod that knows an address from before a policy that denies
// its name cannot reach it, though it asks no more: a pod that no policy selected, and one that
// another policy did. A name of another rule that has no answer delays nothing.
func TestDeniedAddressesThatAreKnown(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add(`
			denied.test. 600 IN A 198.51.100.5
			denied.test. 600 IN AAAA 2001:db8:1::5
			www.test. 600 IN A 198.51.100.6`)
		s.zone.say("dead.test", func(*dns.Msg) *dns.Msg { return nil })
		for _, denied := range []string{"NXDomain", "Refuse", "Resolve"} {
			if denied != "NXDomain" {
				s.apply(map[string]string{"denied.yaml": ""})
			} else {
				s.start(map[string]string{
					"a.yaml":     s.Pod("a").Manifest("shop", "a", nil),
					"b.yaml":     s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
					"other.yaml": strings.NewReplacer("{name: denied}", "{name: other}", "denied.test", "www.test", "namespaces: {}", "pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}").Replace(deniedAnswer),
				})
			}
			known := []string{"198.51.100.5:80", "[2001:db8:1::5]:80"}
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Answered)
				}
			}
			asked := time.Now()
			s.apply(map[string]string{"denied.yaml": strings.NewReplacer("NXDomain", denied, "[{name: denied.test}]", "[{name: denied.test}, {name: dead.test}]").Replace(deniedAnswer)})
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Refused)
				}
			}
			t.Logf("%s: denied after %v", denied, time.Since(asked).Round(time.Millisecond))
			s.expect("b", "tcp", "198.51.100.6:80", lab.Refused)
			s.expect("a", "tcp", "198.51.100.6:80", lab.Answered)
		}
	})
}
