package scenarios

import (
	"slices"
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
  dns: {denied: Resolve}
`

// TestDeniedAddressesThatAreKnown: a pod that knows an address from before a policy that denies
// its name, and resolves it, cannot reach it, though it asks no more: a pod that no policy selected, and one that
// another policy did. A name of another rule that has no answer delays nothing.
func TestDeniedAddressesThatAreKnown(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			denied.test. 600 IN A 198.51.100.5
			denied.test. 600 IN AAAA 2001:db8:1::5
			www.test. 600 IN A 198.51.100.6`)
		s.zone.say("dead.test", func(*dns.Msg) *dns.Msg { return nil })
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", nil),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
			"other.yaml": strings.NewReplacer("{name: denied}", "{name: other}", "denied.test", "www.test", "namespaces: {}", "pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}").Replace(deniedAnswer),
		})
		for what, rule := range map[string]string{"all ports": "action: Deny", "a port": "action: Deny\n    ports: [{port: 80}]"} {
			known := []string{"198.51.100.5:80", "[2001:db8:1::5]:80"}
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Answered)
				}
			}
			asked := time.Now()
			s.apply(map[string]string{"denied.yaml": strings.NewReplacer("action: Deny", rule, "[{name: denied.test}]", "[{name: denied.test}, {name: dead.test}]").Replace(deniedAnswer)})
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Refused)
				}
			}
			t.Logf("%s: denied after %v", what, time.Since(asked).Round(time.Millisecond))
			s.expect("b", "tcp", "198.51.100.6:80", lab.Refused)
			s.expect("a", "tcp", "198.51.100.6:80", lab.Answered)
			s.apply(map[string]string{"denied.yaml": ""})
		}
	})
}

// TestRefusedNamesCloseNothing: a name of a deny-list whose owner answers with the address of
// another closes that address to no pod: the agent does not ask for the name, a pod that asks gets
// no answer, and an accepted name whose alias it is brings no address.
func TestRefusedNamesCloseNothing(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			denied.test. 600 IN A 198.51.100.6
			led.test. 600 IN CNAME denied.test.
			shown.test. 600 IN A 198.51.100.5`)
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", nil),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", nil),
			"shown.yaml": strings.NewReplacer("{name: denied}", "{name: shown}", "priority: 1", "priority: 2", "denied.test", "shown.test").Replace(deniedAnswer),
			"led.yaml":   strings.NewReplacer("{name: denied}", "{name: led}", "priority: 1", "priority: 3", "denied.test", "led.test", "Deny", "Accept").Replace(deniedAnswer),
		})
		for denied, rcode := range map[string]int{"NXDomain": dns.RcodeNameError, "Refuse": dns.RcodeRefused} {
			s.apply(map[string]string{"denied.yaml": strings.Replace(deniedAnswer, "Resolve", denied, 1)})
			for _, pod := range []string{"a", "b"} {
				s.eventually(pod, "198.51.100.5:80", lab.Refused) // the exact names are resolved
				for _, name := range []string{"denied.test", "led.test"} {
					if r, err := s.ask(pod, "udp", name, dns.TypeA); err != nil || r.Rcode != rcode {
						t.Errorf("%s, pod %s asks for %s: %v %v", denied, pod, name, r, err)
					}
				}
				s.expect(pod, "tcp", "198.51.100.6:80", lab.Answered)
			}
			s.apply(map[string]string{"denied.yaml": ""})
		}
		if asked := s.outside.Asked(); slices.Contains(asked, "denied.test. A") {
			t.Errorf("the agent asked for a refused name: %v", asked)
		}
	})
}
