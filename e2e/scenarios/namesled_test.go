package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// startOnAPI starts an agent of a Corefile with the objects of an API server, and pods of the namespace shop
// that are labelled by their names.
func (s *stage) startOnAPI(kind nodeKind, api *apiServer, at, config string, pods ...string) {
	s.t.Helper()
	api.set(s.t, "nodes", "metadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.168.77.1}]}\n")
	api.set(s.t, "namespaces", "metadata: {name: shop}\n", "metadata: {name: evil}\n")
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("metadata: {namespace: shop, name: %s, labels: {app: %[1]s}}\nspec: {nodeName: n1, containers: []}\nstatus: {phase: Running, podIPs: [{ip: %q}, {ip: %q}]}\n", p, s.Pod(p).Addr4, s.Pod(p).Addr6))
	}
	api.set(s.t, "pods", all...)
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	fatal.If(s.t, os.WriteFile(path, []byte(kubeconfigFor(at)), 0o600))
	s.agentWith(config, append(kind.args(), "--source", "kube", "--kubeconfig", path, "--node-name", "n1", "--namespace", "namegate", "--pod-name", "agent", "--daemonset", "namegate")...)
	s.start(nil)
}

// TestNamesLedElsewhere: a tenant's Service claims the addresses of names by spec.externalIPs and leads them
// elsewhere. What rules by name accept does not follow, in any tier; what they deny and pass is decided by what is
// dialled, and by network what is reached is allowed. Names lead through addresses that the cluster assigned, through
// load balancers that `rebind allow` has, and to the node.
func TestNamesLedElsewhere(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		const at = "203.0.113.10:6443"
		api := serveAPI(t, s.World, at)
		s.zone.add(`
			registry.test. 3600 IN A 198.51.100.1
			registry.test. 3600 IN AAAA 2001:db8:1::1
			bad.test. 3600 IN A 198.51.100.2
			bad.test. 3600 IN AAAA 2001:db8:1::2
			node.test. 3600 IN A 198.51.100.3
			node.test. 3600 IN AAAA 2001:db8:1::3
			web.shop.svc.cluster.local. 3600 IN A 10.96.0.20
			web.shop.svc.cluster.local. 3600 IN AAAA fd00:96::20
			late.shop.svc.cluster.local. 3600 IN A 10.96.0.21
			balanced.test. 3600 IN A 198.18.0.7`)
		const tiered = "metadata: {name: %s}\nspec: {tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %[1]s}}}}, egress: [%s]}\n"
		const allowed = "[{name: registry.test}, {name: node.test}, {name: balanced.test}, {pattern: '*.shop.svc.cluster.local'}]"
		namespaced := policy("names", "podSelector: {matchExpressions: [{key: app, operator: In, values: [a, np]}]}\negress:\n- matches: "+allowed)
		api.set(t, "fqdnnetworkpolicies", namespaced)
		api.set(t, "networkpolicies", "metadata: {namespace: shop, name: np}\nspec: {podSelector: {matchLabels: {app: np}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.64/26}}, {ipBlock: {cidr: '2001:db8:1::40/122'}}]}]}\n")
		api.set(t, "clusterfqdnnetworkpolicies",
			fmt.Sprintf(tiered, "accept", "{action: Accept, matches: "+allowed+"}, {action: Deny}"),
			fmt.Sprintf(tiered, "deny", "{action: Deny, matches: [{name: bad.test}], ports: [{protocol: TCP, port: 443}]}, {action: Accept}"),
			fmt.Sprintf(tiered, "pass", "{action: Pass, matches: [{name: registry.test}]}, {action: Deny}"))
		for i, p := range []string{"np", "accept", "deny", "pass"} {
			s.addPod(p, 20+i)
		}
		const web = "metadata: {namespace: shop, name: web}\nspec: {type: ClusterIP, clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20, 'fd00:96::20'], ports: [{port: 443, protocol: TCP}]}\n"
		const balanced = "metadata: {namespace: shop, name: balanced}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.22, ports: [{port: 443, protocol: TCP}]}\nstatus: {loadBalancer: {ingress: [{ip: 198.18.0.7}]}}\n"
		api.set(t, "services", web, balanced)
		s.startOnAPI(kind, api, at, strings.Replace(corefile, "audit AUDIT", "audit AUDIT\n    rebind allow balanced.test 198.18.0.0/24", 1), "a", "np", "accept", "deny", "pass")

		s.serve(s.Node, 9090)
		led := func(claims ...string) {
			t.Helper()
			to := func(addr, to string) lab.Service {
				return lab.Service{Addr: netip.MustParseAddr(addr), Protocol: "tcp", Port: 443, To: []netip.AddrPort{netip.MustParseAddrPort(to)}}
			}
			services := []lab.Service{
				to("10.96.0.20", "198.51.100.90:8080"), to("fd00:96::20", "[2001:db8:1::5a]:8080"), to("10.96.0.21", "198.51.100.90:8080"), to("198.18.0.7", "198.51.100.90:8080"),
				to("198.51.100.3", "192.168.77.1:9090"), to("2001:db8:1::3", "[fd00:77::1]:9090"),
			}
			for _, c := range claims {
				end := "198.51.100.66:443"
				if strings.Contains(c, ":") {
					end = "[2001:db8:1::42]:443"
				}
				services = append(services, to(c, end))
			}
			fatal.If(t, s.SetServices(services...))
		}
		led()
		registry, bad, node := []string{"198.51.100.1", "2001:db8:1::1"}, []string{"198.51.100.2", "2001:db8:1::2"}, []string{"198.51.100.3", "2001:db8:1::3"}
		for _, pod := range []string{"a", "np", "accept", "pass"} {
			for _, name := range []string{"registry.test", "node.test", "balanced.test", "web.shop.svc.cluster.local", "late.shop.svc.cluster.local"} {
				if pod != "pass" || name == "registry.test" {
					s.resolve(pod, name, dns.TypeA)
					s.resolve(pod, name, dns.TypeAAAA)
				}
			}
		}
		s.resolve("deny", "bad.test", dns.TypeA)
		s.resolve("deny", "bad.test", dns.TypeAAAA)
		expect := func(pod string, want lab.Outcome, addrs ...string) {
			t.Helper()
			for _, a := range addrs {
				s.expect(pod, "tcp", netip.AddrPortFrom(netip.MustParseAddr(a), 443).String(), want)
			}
		}
		for _, pod := range []string{"a", "np", "accept", "pass"} {
			expect(pod, lab.Answered, registry...)
		}
		expect("deny", lab.Refused, bad...)
		before := []*line{s.line("a", "tcp", netip.MustParseAddr(registry[0])), s.line("accept", "udp", netip.MustParseAddr(registry[1]))}

		api.set(t, "services", web, balanced, "metadata: {namespace: evil, name: thief}\nspec: {type: ClusterIP, clusterIP: 10.96.0.9, externalIPs: [198.51.100.1, 198.51.100.2, '2001:db8:1::1', '2001:db8:1::2'], ports: [{port: 443, protocol: TCP}]}\n",
			"metadata: {namespace: shop, name: late}\nspec: {type: ClusterIP, clusterIP: 10.96.0.21, ports: [{port: 443, protocol: TCP}]}\n")
		led(append(registry, bad...)...)
		s.eventually("a", "10.96.0.21:443", lab.Answered)
		for _, pod := range []string{"a", "accept"} {
			expect(pod, lab.Refused, registry...)
			expect(pod, lab.Answered, node...)
			expect(pod, lab.Answered, "10.96.0.20", "fd00:96::20", "10.96.0.21", "198.18.0.7")
			s.expect(pod, "tcp", "198.51.100.1:80", lab.Answered) // which is not led on
		}
		expect("np", lab.Answered, registry...)
		expect("pass", lab.Answered, registry...)
		expect("deny", lab.Refused, bad...)
		s.goesOn("after the claim", before...)

		// The load balancer's address goes, and the Service with it.
		api.set(t, "services", web)
		s.eventually("a", "198.18.0.7:443", lab.Refused)
		expect("accept", lab.Refused, "198.18.0.7", "10.96.0.21")
		expect("a", lab.Answered, "10.96.0.20", "fd00:96::20")
		led()
		for _, pod := range []string{"a", "accept"} {
			expect(pod, lab.Answered, registry...)
		}
	})
}

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
					diff.Equal(t, dns.RcodeNameError, r.Rcode, pod, "the outside name behind", c.name, "is to be denied", r)
					continue // no policy for the pod denies an address that no answer had
				}
				s.expect(pod, "tcp", c.to+":80", c.want)
			}
		}
	})
}
