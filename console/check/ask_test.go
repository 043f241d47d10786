package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
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
		if len(pods) != 1 {
			t.Fatalf("%d pods %s", len(pods), c.pod)
		}
		for _, to := range c.to {
			q, err := explain.ParseTarget(to)
			fatal.If(t, err)
			for _, line := range m.Ask(pods[0], q, inCluster).lines() {
				fmt.Fprintln(&out, line)
			}
		}
	}
	golden(t, "ask", out.String())
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
	edge := "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: e}\nspec: {tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}\n"
	q, err := explain.ParseTarget("registry.corp.svc")
	fatal.If(t, err)
	if a := manifests(t, edge).Ask(node, q, Options{ClusterDomain: "cluster.local"}); strings.Contains(strings.Join(a.Notes, " "), "pods ask for") {
		t.Errorf("a node has no search suffix of the cluster: %s", a)
	}
}

// TestAskTwin: Ask equals the plain reading of the policies.
func TestAskTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	patterns := []string{"name: a.test", "name: b.a.test", `pattern: "*.test"`, `pattern: "**.test"`, `pattern: "*"`, `pattern: "b*.a.test"`}
	ports := []string{"", "{port: 443}", "{protocol: UDP, port: 53}", "{protocol: TCP}", "{port: 80, endPort: 90}"}
	sets := []policy.PortSet{policy.AnyPort, "tcp/443,udp/443,sctp/443", "udp/53", "tcp", "tcp/80-90,udp/80-90,sctp/80-90"}
	type rule struct {
		audit   bool
		pattern fqdn.Pattern
		set     policy.PortSet
	}
	verdicts := map[explain.Verdict]int{}
	for range short.Rounds(60, 300, 3_000) {
		var text strings.Builder
		var rules []rule
		for i := range 1 + r.IntN(3) {
			audit := r.IntN(3) == 0
			enforcement := map[bool]string{true: "Audit", false: "Enforce"}[audit]
			fmt.Fprintf(&text, "---\napiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p%d, namespace: shop}\n"+
				"spec:\n  podSelector: {}\n  enforcement: %s\n  egress:\n", i, enforcement)
			rules = append(rules, rule{audit: audit, set: ""})
			for range 1 + r.IntN(3) {
				m, p := r.IntN(len(patterns)), r.IntN(len(ports))
				fmt.Fprintf(&text, "  - {matches: [{%s}], ports: [%s]}\n", patterns[m], ports[p])
				_, raw, _ := strings.Cut(patterns[m], ": ")
				parsed, err := fqdn.ParsePattern(strings.Trim(raw, `"`))
				fatal.If(t, err)
				rules = append(rules, rule{audit, parsed, sets[p]})
			}
		}
		m := manifests(t, text.String())
		pod, err := PodWith("shop", "app=cart")
		fatal.If(t, err)
		enforced := false
		for _, rule := range rules {
			enforced = enforced || !rule.audit
		}
		for _, to := range []string{"a.test:443", "b.a.test:53/udp", "a.test", "c.test:85", "x.a.test/icmp", "example.org:443", "b.a.test/udp"} {
			q, err := explain.ParseTarget(to)
			fatal.If(t, err)
			want := map[bool]explain.Verdict{true: explain.Denied, false: explain.WouldDeny}[enforced]
			for _, rule := range rules {
				if rule.pattern.Matches(q.Name) && within(q, rule.set) && (!enforced || !rule.audit) {
					want = explain.Allowed
				}
			}
			got := m.Ask(pod, q, Options{ClusterDomain: "cluster.local"})
			if got.Verdict != want {
				t.Fatalf("%s: %s, want %s, of\n%s", to, got, want, text.String())
			}
			verdicts[want]++
		}
	}
	if len(verdicts) != 3 {
		t.Errorf("only %v came up", verdicts)
	}
}

// within tells whether a port set opens what is asked for.
func within(q explain.Target, set policy.PortSet) bool {
	return slices.ContainsFunc(set.Ranges(), func(r policy.PortRange) bool {
		return r.Protocol == policy.AnyProtocol || (q.Protocol == policy.AnyProtocol || q.Protocol == r.Protocol) && (q.Port == 0 || r.First <= q.Port && q.Port <= r.Last)
	})
}
