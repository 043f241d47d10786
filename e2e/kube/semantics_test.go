package kube

import (
	"fmt"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

// gke is the manifest of GKE's documentation with nothing but its apiVersion changed, and a
// rule whose port has no protocol.
const gke = `---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  name: allow-out-fqdnnp
spec:
  podSelector:
    matchLabels:
      app: curl-client
  egress:
  - matches:
    - pattern: "*.wild.test"
    - name: "www.example.org"
    ports:
    - protocol: "TCP"
      port: 443
  - matches:
    - name: "other.test"
    ports:
    - port: 80
`

// testGKE: a manifest as GKE's kind writes it behaves as the design says, on a
// routed and on a bridged node, IPv4 and IPv6.
func testGKE(t *testing.T) {
	s := begin(t, "gke")
	var pods []string
	for _, n := range nodes {
		pods = append(pods, pod("client-"+n, n, map[string]string{"app": "curl-client"}), pod("other-"+n, n, map[string]string{"app": "other"}))
	}
	s.run(pods...)
	s.apply(gke)
	for _, n := range nodes {
		client, other := "client-"+n, "other-"+n
		s.enforced(soon, client)
		for _, network := range []string{"tcp", "tcp6"} {
			s.gets(client, network, "www.example.org", 443, works)
			s.gets(client, network, "other.test", 443, denied)
			s.gets(client, network, "www.example.org", 80, denied)
			s.gets(client, network, "other.test", 80, works)
		}
		s.gets(client, "tcp", "a.wild.test", 443, works)
		s.gets(client, "tcp", "wild.test", 443, want{"failed"}) // the apex has no address
		s.gets(client, "udp", "www.example.org", 443, denied)
		s.gets(client, "udp", "other.test", 80, works)
		s.dials(client, "tcp", "203.0.113.99:443", denied)
		s.dials(client, "tcp", "[2001:db8::99]:443", denied)
		s.dials(other, "tcp", raw, works)
		s.gets(other, "tcp6", "other.test", 80, works)
	}
	s.eventually(soon, "the condition", func() error {
		if status, reason, message := s.condition("allow-out-fqdnnp", "Accepted"); status != "True" || reason != "Accepted" {
			return fmt.Errorf("Accepted is %q %q %q", status, reason, message)
		}
		return nil
	})
	columns := s.kubectl("get", "fqdnnp", "-n", s.ns)
	for _, word := range []string{"NAME", "ENFORCEMENT", "ACCEPTED", "allow-out-fqdnnp", "Enforce", "True"} {
		diff.Has(t, word, columns, "kubectl get fqdnnp does not show")
	}
}

// testServices: a name of the cluster that a policy covers works through
// kube-proxy and without, another does not; resolving it always works.
func testServices(t *testing.T) {
	s := begin(t, "services")
	service := func(name, app, clusterIP string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: %s}, ipFamilyPolicy: RequireDualStack, ports: [{port: 8080}]%s}\n", name, app, clusterIP)
	}
	s.run(
		pod("client", "node-a", map[string]string{"app": "client"}), pod("client-b", "node-b", map[string]string{"app": "client"}),
		pod("plain", "node-a", nil), pod("plain-b", "node-b", nil),
		pod("allowed", "node-b", map[string]string{"app": "allowed"}, "serve", "allowed", "8080"),
		pod("headless", "node-a", map[string]string{"app": "headless"}, "serve", "headless", "8080"),
		pod("denied", "node-b", map[string]string{"app": "denied"}, "serve", "denied", "8080"),
		service("allowed", "allowed", ""), service("headless", "headless", ", clusterIP: None"), service("denied", "denied", ""))
	// The cluster needs its time until a Service works for anyone.
	for _, from := range []string{"plain", "plain-b"} {
		for _, name := range []string{"allowed", "headless", "denied"} {
			for _, network := range []string{"tcp", "tcp6"} {
				s.eventually(patient, name+" for "+from, func() error {
					g, err := the.Get(s.ctx, s.ref(from), network, name+".services.svc.cluster.local", 8080)
					if err == nil && !works.has(g.Class) {
						err = fmt.Errorf("%+v", g)
					}
					return err
				})
			}
		}
	}
	s.apply(policy("services", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: allowed.services.svc.cluster.local}, {name: headless.services.svc.cluster.local}], ports: [{protocol: TCP, port: 8080}]}]}`))
	for _, client := range []string{"client", "client-b"} {
		s.enforced(soon, client)
		for _, network := range []string{"tcp", "udp", "tcp6"} {
			w := works
			if network == "udp" {
				w = denied
			}
			s.gets(client, network, "allowed.services.svc.cluster.local", 8080, w)
			s.gets(client, network, "headless.services.svc.cluster.local", 8080, w)
			s.gets(client, network, "denied.services.svc.cluster.local", 8080, denied)
		}
	}
}
