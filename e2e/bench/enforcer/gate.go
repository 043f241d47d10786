package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// portSets is how many port sets each selected pod has.
const portSets = 20

func portOf(k int) int { return sinkPort - portSets/2 + k }

const corefile = `. {
    forward . 192.0.2.53
    cluster cluster.local 10.1.0.0/24 fd00:1::/64
    audit AUDIT
    cache
    limits {
        queries 65536
        queries_per_pod 65536
        rate_per_pod 1000000
        burst_per_pod 1000000
    }
}
`

// manifests are every pod, the selected ones with the label that policies select, and one
// policy for each port set.
func manifests(selected []int) map[string]string {
	chosen := map[int]bool{}
	for _, i := range selected {
		chosen[i] = true
	}
	var pods, policies strings.Builder
	for i := range maxPods {
		a4, a6 := podAddrs(i)
		p := lab.Pod{Host: &lab.Host{Name: fmt.Sprintf("uid-%d", i)}, Addr4: a4, Addr6: a6}
		fmt.Fprintf(&pods, "---\n%s", p.Manifest("shop", fmt.Sprintf("pod-%d", i), map[string]string{"selected": fmt.Sprint(chosen[i])}))
	}
	for k := range portSets {
		fmt.Fprintf(&policies, `---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: ports-%[1]d, namespace: shop}
spec:
  podSelector: {matchLabels: {selected: "true"}}
  egress:
  - matches: [{pattern: "*.set-%[1]d.bench.test"}]
    ports: [{protocol: TCP, port: %[2]d}]
`, k, portOf(k))
	}
	return map[string]string{"pods.yaml": pods.String(), "policies.yaml": policies.String()}
}

// ingressManifests are every pod, and a NetworkPolicy for ingress to the selected ones: from pods and networks, the
// world at last.
func ingressManifests(selected []int) map[string]string {
	return map[string]string{"pods.yaml": manifests(selected)["pods.yaml"], "policies.yaml": fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: in, namespace: shop}
spec:
  podSelector: {matchLabels: {selected: "true"}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {selected: "true"}}}]
    ports: [{port: 8080}, {port: 9090}]
  - from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.7.0/24]}}]
  - from: [{ipBlock: {cidr: 192.168.77.0/24}}]
    ports: [{port: %d, endPort: %d}]
`, sinkPort, sinkPort+sinkPorts-1)}
}

// answer gives every name the target's addresses.
func answer(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 3600}
	switch q.Question[0].Qtype {
	case dns.TypeA:
		r.Answer = []dns.RR{&dns.A{Hdr: h, A: target4.AsSlice()}}
	case dns.TypeAAAA:
		r.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: target6.AsSlice()}}
	}
	return r
}

// guard starts the agent on a node, with policies for the first selected pods, and a resolver
// with the given answers. It waits until the policies are in force.
func (b *bench) guard(n *node, answer lab.Answerer, selected []int) {
	var err error
	n.world, err = n.ServeWorld(answer)
	fatal.If(b, err)
	b.enforce(n, manifests(selected), func(s lab.Status) bool { return s.InSync && s.Enforcer.Selected == len(selected) })
}

// enforce starts the agent on a node with policies, and waits until its status says that they are in force.
func (b *bench) enforce(n *node, manifests map[string]string, inForce func(lab.Status) bool, args ...string) {
	var err error
	n.agent, err = n.NewAgent(b.Agent, n.dir, corefile, args...)
	fatal.If(b, err)
	fatal.If(b, n.agent.Write(manifests))
	fatal.If(b, n.agent.Start())
	fatal.If(b, n.agent.WaitFor("the policies", inForce))
}

// resolver is the address that pods ask.
var resolver = netip.AddrPortFrom(lab.Resolver4, 53)

// resolve lets the client learn the addresses that it connects to.
func (b *bench) resolve(n *node) {
	for k := range portSets {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			b.Resolve(n.Pod(client).Host, resolver, fmt.Sprintf("www.set-%d.bench.test", k), qtype)
		}
	}
}
