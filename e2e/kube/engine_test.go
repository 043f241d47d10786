package kube

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// agentLabels selects the agents' pods.
const agentLabels = "app.kubernetes.io/name=namegate,app.kubernetes.io/component=agent"

func fields(s string) []string { return strings.Fields(s) }

// www is the IPv4 address of www.example.org in the world of the cluster.
const www = "198.51.100.11:80"

// engine is another NetworkPolicy engine in the filter table of a node, for one pod
// that may ask kube-dns and nothing else: established traffic passes, DNS to the
// cluster's resolver and its pods passes, what NetworkPolicies for it open passes, the rest of
// the pod's packets is dropped.
type engine struct {
	*scenario
	node *cluster.Node
	addr string // the pod's
}

// obey writes the engine's rules by what NetworkPolicies open.
func (e *engine) obey(policies ...networkingv1.NetworkPolicy) {
	e.Helper()
	rules := [][]string{
		{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
		{"-d", "10.96.0.10", "-p", "udp", "--dport", "53", "-j", "RETURN"},
		{"-d", "10.244.0.0/16", "-p", "udp", "--dport", "53", "-j", "RETURN"},
	}
	for _, c := range policies {
		for _, r := range c.Spec.Egress {
			rules = append(rules, opened(r)...)
		}
	}
	lines := [][]string{{"-N", "ENGINE"}, {"-F", "ENGINE"}}
	for _, r := range append(rules, []string{"-j", "DROP"}) {
		lines = append(lines, append([]string{"-A", "ENGINE"}, r...))
	}
	for _, hook := range []string{"INPUT", "FORWARD"} {
		lines = append(lines, []string{"-D", hook, "-s", e.addr, "-j", "ENGINE"}, []string{"-I", hook, "1", "-s", e.addr, "-j", "ENGINE"})
	}
	for _, line := range lines {
		if out, err := e.node.Run("iptables", append([]string{"-w"}, line...)...); err != nil && line[0] != "-D" && line[0] != "-N" {
			e.Fatal(err, out)
		}
	}
}

// opened returns the rules of iptables for an egress rule with numbers for ports.
func opened(r networkingv1.NetworkPolicyEgressRule) (rules [][]string) {
	to := [][]string{nil}
	if len(r.To) > 0 {
		to = nil
	}
	for _, peer := range r.To {
		if !strings.Contains(peer.IPBlock.CIDR, ":") {
			to = append(to, []string{"-d", peer.IPBlock.CIDR})
		}
	}
	ports := [][]string{nil}
	if len(r.Ports) > 0 {
		ports = nil
	}
	for _, p := range r.Ports {
		words := []string{"-p", strings.ToLower(string(*p.Protocol))}
		if p.Port != nil {
			last := p.Port.IntVal
			if p.EndPort != nil {
				last = *p.EndPort
			}
			words = append(words, "--dport", strconv.Itoa(int(p.Port.IntVal))+":"+strconv.Itoa(int(last)))
		}
		ports = append(ports, words)
	}
	for _, d := range to {
		for _, p := range ports {
			rules = append(rules, append(append(append([]string(nil), d...), p...), "-j", "RETURN"))
		}
	}
	return rules
}

// end takes the engine away.
func (e *engine) end() {
	for _, line := range [][]string{{"-D", "INPUT", "-s", e.addr, "-j", "ENGINE"}, {"-D", "FORWARD", "-s", e.addr, "-j", "ENGINE"}, {"-F", "ENGINE"}, {"-X", "ENGINE"}} {
		if _, err := e.node.Run("iptables", append([]string{"-w"}, line...)...); err != nil {
			e.Error(err)
		}
	}
}

// dnsOnly lets labelled pods ask the cluster's resolver and nothing else.
const dnsOnly = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: dns-only}
spec:
  podSelector: {matchExpressions: [{key: app, operator: Exists}]}
  policyTypes: [Egress]
  egress:
  - to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{protocol: UDP, port: 53}]
`

// forEngine returns the NetworkPolicies that check prints for another engine, so that it does not deny a
// connection of a pod.
func (s *scenario) forEngine(pod, to string) string {
	s.Helper()
	r := told[check.Report](s, 0, "check", "-n", s.ns, "--pod", pod, "--to", to)
	if len(r.Answers) != 1 || r.Answers[0].Advice == nil || r.Answers[0].Advice.NetworkPolicy == "" {
		s.Fatalf("nothing for another engine: %+v", r)
	}
	return r.Answers[0].Advice.NetworkPolicy
}

// testEngine: another engine that drops the intercepted query is found by the
// self-test and said on the policy; with the NetworkPolicy that check prints, which
// such an engine obeys, names resolve and their ports are open, and Namegate denies the rest.
func testEngine(t *testing.T) {
	var all []*engine
	for _, n := range the.Nodes {
		s := begin(t, "engine-"+n.Name)
		s.run(pod("client", n.Name, map[string]string{"app": "client"}))
		e := &engine{scenario: s, node: n, addr: s.addresses("client")[0]}
		all = append(all, e)
		e.obey()
		defer e.end()
		s.apply(dnsOnly)
		s.apply(policy("names", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 80}]}]}`))
	}
	for _, e := range all {
		e.enforced(soon, "client")
		e.saysDNSBlocked()
		text := e.forEngine("client", "www.example.org:80")
		e.apply(text)
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(text), &n))
		e.obey(n)
	}
	for _, e := range all {
		e.eventually(patient, "the end of DNSBlocked", func() error {
			if status, reason, _ := e.condition("names", "DNSBlocked"); status == "True" {
				return fmt.Errorf("DNSBlocked is still %s", reason)
			}
			return nil
		})
		e.gets("client", "tcp", "www.example.org", 80, works)
		e.dials("client", "tcp", www, works)
		e.dials("client", "tcp", raw, denied) // the engine lets it through
	}
}

// saysDNSBlocked demands that the policy says that queries are dropped, and what to do.
func (s *scenario) saysDNSBlocked() {
	s.Helper()
	s.eventually(patient, "DNSBlocked", func() error {
		if status, reason, _ := s.condition("names", "DNSBlocked"); status != "True" {
			return fmt.Errorf("DNSBlocked is %q %q", status, reason)
		}
		return nil
	})
	_, reason, message := s.condition("names", "DNSBlocked")
	s.Logf("DNSBlocked %s: %s", reason, message)
	if !strings.Contains(message, "kubectl namegate explain "+s.ns+"/client ") {
		s.Errorf("the message does not say what to do: %s", message)
	}
	s.eventually(soon, "an event", func() error {
		if out := s.kubectl("get", "events", "-n", s.ns); !strings.Contains(out, "DNSBlocked") {
			return fmt.Errorf("no event DNSBlocked:\n%s", out)
		}
		return nil
	})
}
