package kube

import (
	"fmt"
	"strings"
	"testing"
)

// agentLabels selects the agents' pods.
const agentLabels = "app.kubernetes.io/name=namegate,app.kubernetes.io/component=agent"

func fields(s string) []string { return strings.Fields(s) }

// engine is what another NetworkPolicy engine does in the filter table for a pod
// that may ask kube-dns and nothing else: established traffic passes, DNS to the
// cluster's resolver and its pods passes, what an egress rule of a NetworkPolicy
// opens passes, the rest of the pod's packets is dropped.
func engine(addr string, open ...string) (lines [][]string) {
	rules := [][]string{
		{"-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
		{"-d", "10.96.0.10", "-p", "udp", "--dport", "53", "-j", "RETURN"},
		{"-d", "10.244.0.0/16", "-p", "udp", "--dport", "53", "-j", "RETURN"},
	}
	for _, to := range open {
		rules = append(rules, []string{"-d", to, "-p", "udp", "--dport", "53", "-j", "RETURN"}, []string{"-d", to, "-p", "tcp", "--dport", "53", "-j", "RETURN"})
	}
	rules = append(rules, []string{"-d", "198.51.100.0/24", "-j", "RETURN"}, []string{"-j", "DROP"})
	lines = append(lines, []string{"-N", "ENGINE"}, []string{"-F", "ENGINE"})
	for _, r := range rules {
		lines = append(lines, append([]string{"-A", "ENGINE"}, r...))
	}
	for _, hook := range []string{"INPUT", "FORWARD"} {
		lines = append(lines, []string{"-D", hook, "-s", addr, "-j", "ENGINE"}, []string{"-I", hook, "1", "-s", addr, "-j", "ENGINE"})
	}
	return lines
}

// testEngine: another engine that drops the intercepted query is found by the
// self-test and said on the policy; with the companion NetworkPolicy, which such
// an engine obeys, all works.
func testEngine(t *testing.T) {
	for _, n := range the.Nodes {
		t.Run(n.Name, func(t *testing.T) {
			s := begin(t, "engine-"+n.Name)
			s.run(pod("client", n.Name, map[string]string{"app": "client"}))
			addr := s.addresses("client")[0]
			rules := func(open ...string) {
				for _, line := range engine(addr, open...) {
					if out, err := n.Run("iptables", append([]string{"-w"}, line...)...); err != nil && line[0] != "-D" && line[0] != "-N" {
						t.Fatal(err, out)
					}
				}
			}
			rules()
			defer func() {
				for _, line := range [][]string{{"-D", "INPUT", "-s", addr, "-j", "ENGINE"}, {"-D", "FORWARD", "-s", addr, "-j", "ENGINE"}, {"-F", "ENGINE"}, {"-X", "ENGINE"}} {
					if _, err := n.Run("iptables", append([]string{"-w"}, line...)...); err != nil {
						t.Error(err)
					}
				}
			}()
			s.apply(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: dns-only}
spec:
  podSelector: {matchExpressions: [{key: app, operator: Exists}]}
  policyTypes: [Egress]
  egress:
  - to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{protocol: UDP, port: 53}]
`)
			s.apply(policy("names", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: www.example.org}]}]}`))
			s.enforced(soon, "client")
			s.eventually(patient, "DNSBlocked", func() error {
				if status, reason, _ := s.condition("names", "DNSBlocked"); status != "True" {
					return fmt.Errorf("DNSBlocked is %q %q", status, reason)
				}
				return nil
			})
			_, reason, message := s.condition("names", "DNSBlocked")
			t.Logf("DNSBlocked %s: %s", reason, message)
			if !strings.Contains(message, "companion") {
				t.Errorf("the message does not say what to do: %s", message)
			}
			s.eventually(soon, "an event", func() error {
				if out := s.kubectl("get", "events", "-n", s.ns); !strings.Contains(out, "DNSBlocked") {
					return fmt.Errorf("no event DNSBlocked:\n%s", out)
				}
				return nil
			})
			if _, err := the.Helm(s.ctx, helmArgs("upgrade", "--set", "companion.enabled=true")...); err != nil {
				t.Fatal(err)
			}
			var opened []string
			s.eventually(patient, "the companion", func() error {
				opened = fields(s.kubectl("get", "networkpolicies", "-n", s.ns, "-l", "app.kubernetes.io/managed-by=namegate", "-o", "jsonpath={.items[*].spec.egress[*].to[*].ipBlock.cidr}"))
				if len(opened) == 0 {
					return fmt.Errorf("no companion")
				}
				return nil
			})
			var four []string
			for _, o := range opened {
				if !strings.Contains(o, ":") {
					four = append(four, o)
				}
			}
			rules(four...)
			s.eventually(patient, "the end of DNSBlocked", func() error {
				if status, reason, _ := s.condition("names", "DNSBlocked"); status == "True" {
					return fmt.Errorf("DNSBlocked is still %s", reason)
				}
				return nil
			})
			s.gets("client", "tcp", "www.example.org", 80, works)
			s.kubectl("delete", "networkpolicy", "-n", s.ns, "dns-only")
			s.eventually(soon, "the companion's end", func() error {
				if left := s.kubectl("get", "networkpolicies", "-n", s.ns, "-o", "name"); left != "" {
					return fmt.Errorf("left: %s", left)
				}
				return nil
			})
		})
	}
}
