package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

func shop(t *testing.T) *Manifests {
	t.Helper()
	m, err := Read([]string{"testdata/shop.yaml"}, nil, false)
	fatal.If(t, err)
	return m
}

// TestAsk: each kind of answer, word for word, by policies of a namespace and by policies of all four
// kinds together.
func TestAsk(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		file, pod string
		to        []string
	}{
		{"shop", "cart", []string{"www.example.org:443", "WWW.Example.org.:443/TCP", "a.cdn.test", "ns.example.org:53/udp", "ns.example.org/icmp", "a.cdn.test:80", "a.cdn.test/udp", "evil.test/icmp", "api.example.org:8080"}},
		{"shop", "batch", []string{"api.example.org:8080", "evil.test:443"}},
		{"shop", "free", []string{"evil.test:443"}},
		{"shop", "node", []string{"evil.test:443"}},
		{"tiers", "cart", []string{"x.paste.test:443", "www.example.org:443", "registry.test:443", "a.b.mirror.test:80", "ntp.test:123/udp"}},
		{"tiers", "free", []string{"ntp.test:123/udp", "dot.test:853"}},
		{"tiers", "other", []string{"x.paste.test:443"}},
	} {
		m, err := Read([]string{"testdata/" + c.file + ".yaml"}, nil, false)
		fatal.If(t, err)
		pods := slices.DeleteFunc(m.Pods, func(p Pod) bool { return p.Name != c.pod })
		diff.MustEqual(t, 1, len(pods), "pods", c.pod)
		for _, to := range c.to {
			q, err := explain.ParseTarget(to)
			fatal.If(t, err)
			for _, line := range m.Ask(pods[0], q, inCluster).lines() {
				fmt.Fprintln(&out, line)
			}
		}
	}
	golden.Compare(t, "ask", out.String())
}

// TestAskByServices: the name outside to which a Service with externalName leads is decided in its place,
// and the name of the Service counts for rules that deny alone.
func TestAskByServices(t *testing.T) {
	const manifest = `apiVersion: v1
kind: Service
metadata: {name: partner, namespace: shop}
spec: {type: ExternalName, externalName: api.partner.example}
---
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: admin}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - {action: RULE, matches: [{name: NAME}]}
  - {action: Pass, matches: [{pattern: "**.cluster.local"}]}
  - {action: Deny}
`
	const leads = "partner.shop.svc.cluster.local leads to api.partner.example, which is no name of the cluster and is decided in its place"
	for rule, want := range map[string]string{
		"Accept api.partner.example":            `allowed: "api.partner.example" of admin (spec.egress[0].matches[0]) at stdin:14 covers the name on any; its addresses are opened when the pod asks for it`,
		"Accept partner.shop.svc.cluster.local": "denied: Admin policy admin (spec.egress[2]) at stdin:16 denies api.partner.example",
		"Deny partner.shop.svc.cluster.local":   "denied: Admin policy admin (spec.egress[0]) at stdin:14 denies api.partner.example; its question gets NXDOMAIN (dns.denied: NXDomain)",
	} {
		action, name, _ := strings.Cut(rule, " ")
		m := manifests(t, strings.NewReplacer("RULE", action, "NAME", name).Replace(manifest))
		q, err := explain.ParseTarget("partner.shop.svc.cluster.local:443")
		fatal.If(t, err)
		pod, err := PodWith("shop", "app=cart")
		fatal.If(t, err)
		got := m.Ask(pod, q, Options{ClusterDomain: "cluster.local"})
		if text := string(got.Verdict) + ": " + got.Reason; text != want || !slices.Contains(got.Notes, leads) {
			t.Errorf("%s: %s, %q", rule, text, got.Notes)
		}
	}
}

func TestPodWith(t *testing.T) {
	pod, err := PodWith("shop", "app=cart,tier=front")
	fatal.If(t, err)
	q, _ := explain.ParseTarget("www.example.org:443")
	if got := shop(t).Ask(pod, q, Options{ClusterDomain: "cluster.local"}).String(); !strings.HasPrefix(got, "a pod of shop with app=cart,tier=front to www.example.org:443/tcp: allowed: ") {
		t.Error(got)
	}
	if _, err := PodWith("shop", "cart"); err == nil || !strings.Contains(err.Error(), "write KEY=VALUE") {
		t.Error(err)
	}
}

// TestAskShortNames: a name that is short for one of the cluster is decided as pods ask for it.
func TestAskShortNames(t *testing.T) {
	const text = `apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {}
  egress:
  - matches: [{name: NAME}, {name: metadata.google.internal}]
`
	const full = "pods ask for %s as db.shop.svc.cluster.local"
	for _, c := range []struct{ allows, to, verdict, says string }{
		{"db.shop.svc", "db.shop.svc", "denied", full},
		{"db.shop.svc.cluster.local", "db.shop.svc", "allowed", full},
		{"db.shop", "db.shop", "denied", full},
		{"db.shop.svc.cluster.local", "db.shop", "allowed", full},
		{"db", "db", "denied", full},
		{"db.shop.svc.cluster.local", "db", "allowed", full},
		{"web.shop", "web.shop", "allowed", ""}, // a name of no Service that is known
		{"db.shop.svc.cluster.local", "db.shop.svc.cluster.local", "allowed", ""},
		{"a.test", "metadata.google.internal", "allowed", "write in the Corefile: rebind allow metadata.google.internal 169.254.169.254"},
	} {
		pod, err := PodWith("shop", "")
		fatal.If(t, err)
		q, err := explain.ParseTarget(c.to + ":5432")
		fatal.If(t, err)
		a := manifests(t, strings.ReplaceAll(text, "NAME", c.allows)).Ask(pod, q, Options{ClusterDomain: "cluster.local"})
		says := strings.ReplaceAll(c.says, "%s", c.to)
		if notes := strings.Join(a.Notes, "\n"); a.Allowed() != (c.verdict == "allowed") || !strings.Contains(notes, says) || says == "" && strings.Contains(notes, "pods ask") {
			t.Errorf("%s with a rule for %s: %s", c.to, c.allows, a)
		}
	}
	node, err := NodeWith("")
	fatal.If(t, err)
	edge := "apiVersion: namegate.io/v1alpha1\nkind: NodeNetworkPolicy\nmetadata: {name: e}\nspec: {nodeSelector: {}, priority: 1, egress: [{action: Deny}]}\n"
	q, err := explain.ParseTarget("registry.corp.svc")
	fatal.If(t, err)
	if a := manifests(t, edge).Ask(node, q, Options{ClusterDomain: "cluster.local"}); strings.Contains(strings.Join(a.Notes, " "), "pods ask for") {
		t.Errorf("a node has no search suffix of the cluster: %s", a)
	}
}

// TestAskServerName: a rule that requires the server name answers with checked, which counts as allowed.
func TestAskServerName(t *testing.T) {
	m := manifests(t, `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {}
  egress:
  - matches: [{name: www.example.org}, {name: web.shop.svc.cluster.local}]
    ports: [{protocol: TCP, port: 443}]
    serverName: Require
`)
	pod, err := PodWith("shop", "app=cart")
	fatal.If(t, err)
	const at = `"NAME" of shop/p (spec.egress[0].matches[N]) at stdin:7 covers `
	for to, want := range map[string]string{
		"www.example.org:443": "checked: " + strings.NewReplacer("NAME", "www.example.org", "N", "0").Replace(at) +
			"the name on tcp/443; its addresses are opened when the pod asks for it; checked: the connection must begin with the TLS server name www.example.org",
		"web.shop.svc.cluster.local:443": "denied: " + strings.NewReplacer("NAME", "web.shop.svc.cluster.local", "N", "1").Replace(at) +
			"web.shop.svc.cluster.local, but requires the server name: such a rule opens no address of the cluster",
	} {
		q, err := explain.ParseTarget(to)
		fatal.If(t, err)
		a := m.Ask(pod, q, inCluster)
		diff.Error(t, want, string(a.Verdict)+": "+a.Reason, to)
		diff.Error(t, a.Verdict == explain.Denied, !a.Allowed(), to)
	}
}
