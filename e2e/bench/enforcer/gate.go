package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
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

// manifests are every pod, the first of order with the label that policies select,
// and one policy for each port set.
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

// guard starts the agent on a node, without policies, and a resolver that says what
// answer does.
func (b *bench) guard(n *node, answer lab.Answerer) (err error) {
	if n.world, err = n.ServeWorld(answer); err != nil {
		return err
	}
	var args []string
	if n.name == hosted {
		if args, err = n.hostArgs(); err != nil {
			return err
		}
	}
	if n.agent, err = n.NewAgent(b.agent, n.dir, corefile, args...); err != nil {
		return err
	}
	if n.dataplane != "" {
		if err := n.agent.SetDataplane(n.dataplane); err != nil {
			return err
		}
	}
	if err := n.agent.Write(manifests(nil)); err != nil {
		return err
	}
	return n.agent.Start()
}

// choose brings policies for the selected pods into force and lets the client learn
// where it connects to.
func (n *node) choose(selected []int) error {
	files := manifests(selected)
	if n.name == hosted {
		files["host.yaml"] = hostManifest()
	}
	if n.name == ordered {
		var err error
		if files["cluster.yaml"], err = clusterManifest(); err != nil {
			return err
		}
	}
	if err := n.agent.Write(files); err != nil {
		return err
	}
	if err := n.agent.WaitFor("the policies", func(s lab.Status) bool { return s.InSync && s.Enforcer.Selected == len(selected) }); err != nil {
		return err
	}
	for k := range portSets {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if err := ask(n.Pod(client).Host, fmt.Sprintf("www.set-%d.bench.test.", k), qtype); err != nil {
				return err
			}
		}
	}
	return nil
}

// askLimit bounds one DNS exchange.
const askLimit = 5 * time.Second

// ask resolves a name on a host, through whatever is in the way.
func ask(h *lab.Host, name string, qtype uint16) error {
	c, err := h.Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), askLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	return exchange(c, name, qtype)
}
