package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// clusterPolicy is a manifest of a ClusterFQDNNetworkPolicy; spec is its YAML in flow style.
func clusterPolicy(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec)
}

// administrate applies a cluster policy, which goes with the scenario.
func (s *scenario) administrate(name, spec string) {
	s.Helper()
	s.apply(clusterPolicy(name, spec))
	s.Cleanup(func() {
		if _, err := the.Kubectl(s.ctx, "", "delete", "cfqdnnp", name, "--ignore-not-found"); err != nil {
			s.Error(err)
		}
	})
}

// clusterEnforced waits until the condition Enforced of a cluster policy is true.
func (s *scenario) clusterEnforced(name string) {
	s.Helper()
	s.clusterCondition(soon, name, "True", "", "")
}

// clusterCondition waits until the condition Enforced of a cluster policy's generation has a status,
// a reason unless it is "", and a message with a text.
func (s *scenario) clusterCondition(within time.Duration, name, status, reason, text string) {
	s.Helper()
	s.eventually(within, "the condition Enforced of "+name, func() error {
		var p struct {
			Metadata struct{ Generation int64 }
			Status   struct {
				Conditions []struct {
					Type, Status, Reason, Message string
					ObservedGeneration            int64
				}
			}
		}
		fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "cfqdnnp", name, "-o", "json")), &p))
		for _, c := range p.Status.Conditions {
			if c.Type == "Enforced" && c.Status == status && (reason == "" || c.Reason == reason) && strings.Contains(c.Message, text) && c.ObservedGeneration == p.Metadata.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
}

// inNamespace is the subject of a cluster policy that has the pods of the scenario's
// namespace with a label.
func (s *scenario) inNamespace(app string) string {
	return fmt.Sprintf("{pods: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}, podSelector: {matchLabels: {app: %s}}}}", s.ns, app)
}

// testOrdered: an administrator's Deny by name and by network wins over a namespace's allow,
// Pass leaves it to the namespace, and Baseline closes pods without policies of their own:
// on a routed and on a bridged node, over both families.
func testOrdered(t *testing.T) {
	s := begin(t, "ordered")
	for _, n := range nodes {
		s.apply(pod("shop-"+n, n, map[string]string{"app": "shop"}), pod("plain-"+n, n, map[string]string{"app": "plain"}))
	}
	s.run(policy("own", `{podSelector: {matchLabels: {app: shop}}, egress: [{matches: [{name: www.example.org}, {name: other.test}, {name: twin.test}, {name: bank.test}], ports: [{protocol: TCP, port: 80}]}]}`))
	for _, n := range nodes {
		s.enforced(soon, "shop-"+n)
		for _, network := range []string{"tcp", "tcp6"} {
			for _, name := range []string{"www.example.org", "other.test", "twin.test", "bank.test"} {
				s.gets("shop-"+n, network, name, 80, works)
			}
		}
	}
	s.administrate("ordered-admin", `{tier: Admin, priority: 10, subject: `+s.inNamespace("shop")+`, dns: {denied: Resolve}, egress: [
		{action: Pass, matches: [{name: www.example.org}]},
		{name: strangers, action: Deny, matches: [{name: other.test}]},
		{action: Deny, networks: [198.51.100.50/32, "2001:db8::50/128"]},
		{action: Accept, matches: [{name: example.org}], ports: [{protocol: TCP, port: 443}]}]}`)
	s.administrate("ordered-names", `{tier: Admin, priority: 20, subject: `+s.inNamespace("shop")+`, egress: [{action: Deny, matches: [{pattern: "**.wild.test"}]}]}`)
	s.administrate("ordered-base", `{tier: Baseline, priority: 0, subject: `+s.inNamespace("plain")+`, egress: [
		{action: Accept, matches: [{name: www.example.org}], ports: [{port: 80}]}, {action: Deny}]}`)
	for _, name := range []string{"ordered-admin", "ordered-names", "ordered-base"} {
		s.clusterEnforced(name)
	}
	for _, n := range nodes {
		t.Run(n, func(t *testing.T) { s.on(t).orderedOn(n) })
	}
	t.Run("explained", func(t *testing.T) { s.on(t).orderedExplained() })
	s.kubectl("delete", "cfqdnnp", "ordered-admin", "ordered-names", "ordered-base")
	for _, n := range nodes {
		s.eventually(soon, "the end of the administrator's rules on "+n, func() error { return s.got("shop-"+n, "tcp", "other.test", 80, works) })
		s.gets("shop-"+n, "tcp6", "bank.test", 80, works)
		s.dials("shop-"+n, "tcp", raw, denied)
		s.free(soon, "plain-"+n)
	}
}

// orderedOn tries what each tier decides on a node.
func (s *scenario) orderedOn(n string) {
	shop, plain := "shop-"+n, "plain-"+n
	for _, network := range []string{"tcp", "tcp6"} {
		s.gets(shop, network, "other.test", 80, denied) // by name, although it resolves
		s.gets(shop, network, "twin.test", 80, denied)  // the same address under an allowed name
		s.gets(shop, network, "bank.test", 80, denied)  // by network
		s.gets(shop, network, "www.example.org", 80, works)
		s.gets(shop, network, "www.example.org", 81, denied) // the namespace does not allow the port
		s.gets(shop, network, "example.org", 443, works)
		s.gets(plain, network, "www.example.org", 80, works)
		s.gets(plain, network, "other.test", 80, denied)
	}
	s.gets(shop, "tcp", "a.wild.test", 443, want{"failed"}) // NXDOMAIN
	s.dials(shop, "tcp", raw, denied)
	s.dials(plain, "tcp", raw, denied)
	s.dials(plain, "tcp", "[2001:db8::99]:80", denied)
}

// orderedExplained: an administrator sees the rule that decided, a viewer of the namespace
// that it is a cluster policy's, and not more.
func (s *scenario) orderedExplained() {
	s.kubectl("create", "serviceaccount", "-n", s.ns, "viewer")
	s.kubectl("create", "rolebinding", "-n", s.ns, "viewer", "--clusterrole=view", "--serviceaccount="+s.ns+":viewer")
	viewer := "--kubeconfig=" + s.withToken(strings.TrimSpace(s.kubectl("create", "token", "-n", s.ns, "viewer")))
	s.eventually(soon, "the viewer's right", func() error { // the ClusterRole is gathered by a controller
		_, code, err := s.namegate("pods", viewer)
		if code != 0 {
			return err
		}
		return nil
	})
	for _, n := range nodes {
		e := told[explain.Explanation](s, 1, "explain", "shop-"+n, "other.test:80", "-n", s.ns)
		if e.Verdict != explain.Denied || !strings.Contains(e.Reason, "ordered-admin") {
			s.Errorf("the administrator is told %+v", e)
		}
		out, code, err := s.namegate("explain", "shop-"+n, "other.test:80", "-n", s.ns, "-o", "json", viewer)
		if code != 1 || !strings.Contains(out, "a cluster policy (Admin)") {
			s.Errorf("the viewer is told (exit code %d, %v) %s", code, err, out)
		}
		for _, secret := range []string{"ordered-admin", "ordered-names", "strangers", "spec.egress[1]"} {
			if strings.Contains(out, secret) {
				s.Errorf("the viewer is told of %s: %s", secret, out)
			}
		}
		if got := told[console.PodRows](s, 0, "pods", "-n", s.ns); len(got.Pods) != 2*len(nodes) {
			s.Errorf("pods in force are %v", names(got))
		}
	}
}
