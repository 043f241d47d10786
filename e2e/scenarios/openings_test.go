package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// manyMatches returns policies of pods with the label set: many that together have 16,384 matches of each
// name below test, on 256 ports, of which the first is 81 and the last 8080.
func manyMatches() map[string]string {
	const rules, matches = 64, 64
	files := map[string]string{}
	for i := range sharePorts / rules {
		var b strings.Builder
		b.WriteString("podSelector: {matchLabels: {set: many}}\negress:\n")
		for j := range rules {
			port := 10000 + i*rules + j
			switch port {
			case 10000:
				port = 81
			case 10000 + sharePorts - 1:
				port = 8080
			}
			fmt.Fprintf(&b, "- ports: [{protocol: TCP, port: %d}]\n  matches: [", port)
			for k := range matches {
				fmt.Fprintf(&b, "{pattern: \"%s\"}, ", []string{"*.test", "**.test", "f*.test", "**"}[k%4])
			}
			b.WriteString("]\n")
		}
		files[fmt.Sprintf("many-%d.yaml", i)] = policy(fmt.Sprintf("many-%d", i), b.String())
	}
	return files
}

// TestShareOfAName: a pod whose names thousands of matches cover delays no neighbour, neither by its
// queries nor by a label that opens other ports for many addresses. It gets the first openings of a name, and
// the policies of the others say so.
func TestShareOfAName(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		const names, asked = 1500, 100
		s := newStageOf(t, kind)
		s.agentWith(withLimits(fast), kind.args()...)
		files := manyMatches()
		files["a.yaml"] = s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a"})
		files["b.yaml"] = s.Pod("b").Manifest("other", "b", map[string]string{"app": "b"})
		files["first.yaml"] = policy("first", "podSelector: {matchLabels: {app: a}}\negress: [{matches: [{pattern: '**.test'}], ports: [{protocol: TCP, port: 80}]}]")
		files["any-b.yaml"] = strings.Replace(policy("any-b", strings.Replace(anyName, "APP", "b", 1)), "namespace: shop", "namespace: other", 1)
		for i := range names {
			s.zone.add(fmt.Sprintf("f%d.test. 600 IN A 198.18.%d.%d", i, i/250, i%250))
			s.zone.add(fmt.Sprintf("n%d.test. 600 IN A 198.19.%d.%d", i, i/250, i%250))
		}
		s.start(files)
		s.resolve("b", "n0.test", dns.TypeA)
		for i := range names {
			s.resolve("a", fmt.Sprintf("f%d.test", i), dns.TypeA)
		}
		s.expect("a", "tcp", "198.18.0.1:81", lab.Refused)
		files["a.yaml"] = s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a", "set": "many"})
		over := make(chan error, 1)
		go func() {
			err := s.agent.Apply(files)
			for i := range asked {
				// What the pod loses by its policies is its own loss; here none of it is lost.
				r, askErr := s.ask("a", "udp", fmt.Sprintf("f%d.test", i), dns.TypeA)
				if err == nil && askErr == nil && r.Rcode != dns.RcodeSuccess {
					askErr = fmt.Errorf("query %d of the pod: %v", i, r)
				}
				err = errors.Join(err, askErr)
			}
			over <- err
		}()
		done := false
		for i := 1; !done || i <= asked; i++ {
			select {
			case err := <-over:
				fatal.If(t, err)
				done = true
			default:
			}
			r, err := s.ask("b", "udp", fmt.Sprintf("n%d.test", i%names), dns.TypeA)
			if err != nil || r.Rcode != dns.RcodeSuccess || len(lab.Addresses(r)) != 1 {
				t.Fatalf("the neighbour's query %d: %v, error %v", i, r, err)
			}
		}
		s.expect("a", "tcp", "198.18.0.1:80", lab.Answered)
		s.expect("a", "tcp", "198.18.0.1:81", lab.Answered)
		s.expect("a", "tcp", "198.18.0.1:8080", lab.Refused)
		s.says(0, "many-3|open them on more than 64 different sets of ports", "status")
	})
}

// manyRules are cluster policies of app a with 64 rules that accept names below test, one more that accepts
// them on port 8080, and one that denies them on port 81.
func manyRules() string {
	var b strings.Builder
	head := func(priority int) {
		fmt.Fprintf(&b, "---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: rules-%d}\nspec:\n  tier: Admin\n  priority: %d\n"+
			"  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: a}}}}\n  egress:\n", priority, priority)
	}
	rule := func(action string, port int) {
		fmt.Fprintf(&b, "  - {action: %s, matches: [{pattern: '**.test'}], ports: [{protocol: TCP, port: %d}]}\n", action, port)
	}
	head(1)
	for i := range 63 {
		rule("Accept", 10000+i)
	}
	rule("Accept", 443)
	head(2)
	rule("Accept", 8080)
	rule("Deny", 81)
	return b.String()
}

// TestAcceptsOfANameAreBounded: beyond 64 openings of a name only further rules that accept are left
// out, and their policy says so. A rule that denies counts behind any number of them.
func TestAcceptsOfANameAreBounded(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add("x.test. 600 IN A 198.51.100.5\ny.test. 600 IN A 198.51.100.6")
		files := map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a"}), "rules.yaml": manyRules(),
			"own.yaml": policy("own", "podSelector: {matchLabels: {app: a}}\negress: [{matches: [{pattern: '**'}], ports: [{protocol: TCP, port: 80}, {protocol: TCP, port: 81}]}]"),
		}
		s.start(files)
		s.resolve("a", "x.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.5:443", lab.Answered)
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.5:81", lab.Refused)
		s.expect("a", "tcp", "198.51.100.5:8080", lab.Refused)
		s.says(0, "rules-2|more than 64 rules", "status")
		if out, _, _ := s.command("audit"); !strings.Contains(out, "limited by 64 openings") {
			t.Errorf("the log does not say that rules are left out:\n%s", out)
		}
		files["rules.yaml"] = strings.Replace(files["rules.yaml"], "  - {action: Accept, matches: [{pattern: '**.test'}], ports: [{protocol: TCP, port: 10000}]}\n", "", 1)
		s.apply(files)
		s.resolve("a", "y.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.6:8080", lab.Answered)
		s.expect("a", "tcp", "198.51.100.6:81", lab.Refused)
	})
}
