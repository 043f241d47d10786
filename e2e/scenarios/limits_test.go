package scenarios

import (
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	adminEncrypted = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: encrypted}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress: [{action: ACTION, ports: [{port: 853}]}]
  dns: {encrypted: SETTING}
`
)

// TestEncryptedDNS: dns.encrypted: Deny of a namespace takes port 853 out of what its policies
// allow, dialled or reached through a Service, and a rule of the Admin tier overrides it. That of
// a cluster policy comes before its own rules.
func TestEncryptedDNS(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			tls.test. 600 IN A 198.51.100.5
			tls.test. 600 IN AAAA 2001:db8:1::5
			service.shop.svc.cluster.local. 600 IN A 10.96.0.10
			use-application-dns.net. 600 IN A 198.51.100.6
			_dns.resolver.arpa. 600 IN SVCB 1 dns.test. alpn=dot
			_dns.ns1.example.net. 600 IN SVCB 1 ns1.example.net. alpn=dot`)
		s.serve(s.World, 853)
		for _, line := range []string{
			"add table ip others", "add chain ip others pre { type nat hook prerouting priority -100 ; }",
			"add rule ip others pre ip daddr 10.96.0.10 tcp dport 443 dnat to 198.51.100.5:853",
			"add rule ip others pre ip daddr 10.96.0.10 tcp dport 80 dnat to 198.51.100.5:80",
		} {
			if _, err := s.Node.Run("nft", line); err != nil {
				t.Fatal(err)
			}
		}
		deny := policy("deny", "podSelector: {matchLabels: {app: a}}\ndns: {encrypted: Deny}")
		files := map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a"}), "b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "b"}),
			"any-a.yaml": policy("any-a", strings.Replace(anyName, "APP", "a", 1)), "any-b.yaml": policy("any-b", strings.Replace(anyName, "APP", "b", 1)),
			"deny.yaml": deny,
		}
		s.start(files)
		check := func(when string, denied map[string]bool) {
			t.Helper()
			for _, pod := range []string{"a", "b"} {
				s.resolve(pod, "tls.test", dns.TypeA)
				s.resolve(pod, "tls.test", dns.TypeAAAA)
				s.resolve(pod, "service.shop.svc.cluster.local", dns.TypeA)
				want, canary, records := lab.Answered, dns.RcodeSuccess, 1
				if denied[pod] {
					want, canary, records = lab.Refused, dns.RcodeNameError, 0
				}
				for _, to := range []string{"198.51.100.5", "[2001:db8:1::5]"} {
					s.expect(pod, "tcp", to+":853", want)
					s.expect(pod, "udp", to+":853", want)
					s.expect(pod, "tcp", to+":443", lab.Answered)
				}
				s.expect(pod, "tcp", "10.96.0.10:443", want) // leads to port 853
				s.expect(pod, "tcp", "10.96.0.10:80", lab.Answered)
				if r, err := s.ask(pod, "udp", "use-application-dns.net", dns.TypeA); err != nil || r.Rcode != canary {
					t.Errorf("%s: %s: the canary is %v, %v", when, pod, r, err)
				}
				for _, name := range []string{"_dns.resolver.arpa", "_dns.ns1.example.net"} {
					if r, err := s.ask(pod, "tcp", name, dns.TypeSVCB); err != nil || r.Rcode != dns.RcodeSuccess || len(r.Answer) != records {
						t.Errorf("%s: %s: %s is %v, %v", when, pod, name, r, err)
					}
				}
			}
			if t.Failed() {
				t.Fatal(when)
			}
		}
		check("a policy of the namespace denies", map[string]bool{"a": true})
		cluster := func(action, setting string) {
			t.Helper()
			files["cluster.yaml"] = strings.NewReplacer("ACTION", action, "SETTING", setting).Replace(adminEncrypted)
			fatal.If(t, s.agent.Apply(files))
		}
		cluster("Accept", "Deny")
		check("the Admin tier denies at the head of a policy that accepts", map[string]bool{"a": true, "b": true})
		cluster("Pass", "Accept")
		check("the Admin tier passes", map[string]bool{"a": true})
		// The rule is for one port, so that the names are those of the namespace still.
		cluster("Accept", "Accept")
		for _, to := range []string{"198.51.100.5:853", "[2001:db8:1::5]:853", "10.96.0.10:443"} {
			s.expect("a", "tcp", to, lab.Answered)
		}
		files["cluster.yaml"] = ""
		fatal.If(t, s.agent.Apply(files))
		check("the cluster policy is gone", map[string]bool{"a": true})
		s.awaitFlow("denied a tcp 198.51.100.5 853 rule tls.test by shop/any-a")
		files["deny.yaml"] = ""
		fatal.If(t, s.agent.Apply(files))
		check("the policy is gone", nil)
		open := map[string]net.Conn{}
		for _, to := range []string{"198.51.100.5:853", "10.96.0.10:443", "198.51.100.5:443"} {
			c, err := s.Pod("a").Dial("tcp", to, lab.Limit)
			fatal.If(t, err)
			t.Cleanup(func() { _ = c.Close() })
			if open[to] = c; lab.Echo(open[to], lab.Limit) != lab.Answered {
				t.Fatalf("no connection to %s", to)
			}
		}
		files["deny.yaml"] = deny
		fatal.If(t, s.agent.Apply(files))
		for to, c := range open {
			cut := to != "198.51.100.5:443"
			if got := lab.Echo(c, lab.PatienceFor(map[bool]lab.Outcome{true: lab.Silent, false: lab.Answered}[cut])); (got != lab.Answered) != cut {
				t.Errorf("the connection to %s after the policy denies: %s", to, got)
			}
		}
	})
}
