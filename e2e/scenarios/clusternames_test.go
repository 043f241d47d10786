package scenarios

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNamesOfTheClusterAreTheTenants: tenants write the names of the cluster, as a headless Service
// with endpoints outside or one with externalName. Rules that accept or pass all names of the cluster
// open addresses of the cluster alone. An outside name behind such a name is decided by its own rules.
func TestNamesOfTheClusterAreTheTenants(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		server := s.addPod("server", 20)
		s.serve(server.Host, 80)
		s.zone.add(fmt.Sprintf(`
			web.shop.svc.cluster.local. 60 IN A %s
			headless.evil.svc.cluster.local. 60 IN A 198.51.100.9
			mixed.evil.svc.cluster.local. 60 IN A 198.51.100.10
			mixed.evil.svc.cluster.local. 60 IN A %[1]s
			external.evil.svc.cluster.local. 60 IN CNAME out.example.org.
			out.example.org. 60 IN A 198.51.100.11
			known.shop.svc.cluster.local. 60 IN CNAME www.example.org.
			www.example.org. 60 IN A 198.51.100.1`, server.Addr4))
		const rules = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: %s}\nspec: {tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %[1]s}}}}, " +
			"egress: [{action: Accept, matches: [{name: www.example.org}]}, {action: %s, matches: [{pattern: '**.cluster.local'}]}, {action: Deny%s}]}\n"
		files := map[string]string{
			"pass.yaml":   fmt.Sprintf(rules, "pass", "Pass", ""),
			"accept.yaml": fmt.Sprintf(rules, "accept", "Accept", ""),
			"names.yaml":  fmt.Sprintf(rules, "names", "Pass", ", matches: [{pattern: '**'}]"),
			"own.yaml":    policy("own", "podSelector: {matchLabels: {app: own}}\negress:\n- matches: [{name: www.example.org}, {pattern: '**.cluster.local'}]"),
		}
		pods := []string{"pass", "accept", "names", "own"}
		for i, pod := range pods {
			files["pod-"+pod+".yaml"] = s.addPod(pod, 30+i).Manifest("shop", pod, map[string]string{"app": pod})
		}
		files["server.yaml"] = server.Manifest("shop", "server", nil)
		s.start(files)
		for _, pod := range pods {
			for _, c := range []struct {
				name, to string
				want     lab.Outcome
			}{
				{"web.shop", server.Addr4.String(), lab.Answered},
				{"headless.evil", "198.51.100.9", lab.Refused},
				{"mixed.evil", "198.51.100.10", lab.Refused},
				{"mixed.evil", server.Addr4.String(), lab.Answered},
				{"external.evil", "198.51.100.11", lab.Refused},
				{"known.shop", "198.51.100.1", lab.Answered},
			} {
				r, err := s.ask(pod, "udp", c.name+".svc.cluster.local", dns.TypeA)
				fatal.If(t, err)
				// What is denied by name is not told; a pod may know an address all the same.
				if told := len(lab.Addresses(r)) > 0; !told && c.want == lab.Answered {
					t.Errorf("%s: %s has no address: %v", pod, c.name, r)
				}
				if pod == "names" && c.name == "external.evil" {
					if r.Rcode != dns.RcodeNameError {
						t.Errorf("%s: the outside name behind %s is not denied: %v", pod, c.name, r)
					}
					continue // no policy for the pod denies an address that no answer had
				}
				s.expect(pod, "tcp", c.to+":80", c.want)
			}
		}
	})
}
