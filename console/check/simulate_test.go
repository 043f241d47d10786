package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
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

// TestAsk: each kind of answer, word for word.
func TestAsk(t *testing.T) {
	const here = "at testdata/shop.yaml:"
	for _, c := range []struct{ pod, to, want string }{
		{"cart", "www.example.org:443", "deployment shop/cart to www.example.org:443/tcp: allowed: shop/allow-out spec.egress[0].matches[0] (www.example.org) " + here + "8"},
		{"cart", "WWW.Example.org.:443/TCP", "deployment shop/cart to www.example.org:443/tcp: allowed: shop/allow-out spec.egress[0].matches[0] (www.example.org) " + here + "8"},
		{"cart", "a.cdn.test", "deployment shop/cart to a.cdn.test: allowed: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) " + here + "9, on tcp/443"},
		{"cart", "ns.example.org:53/udp", "deployment shop/cart to ns.example.org:53/udp: allowed: shop/allow-out spec.egress[1].matches[0] (ns.example.org) " + here + "13"},
		{"cart", "ns.example.org/icmp", "deployment shop/cart to ns.example.org/icmp: allowed: shop/allow-out spec.egress[1].matches[0] (ns.example.org) " + here + "13, on any"},
		{"cart", "a.cdn.test:80", "deployment shop/cart to a.cdn.test:80/tcp: denied: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) " + here +
			"9 covers it, but on tcp/443 alone; to allow it write under spec.egress of shop/allow-out: - {matches: [{name: a.cdn.test}], ports: [{protocol: TCP, port: 80}]}"},
		{"cart", "a.cdn.test/udp", "deployment shop/cart to a.cdn.test/udp: denied: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) " + here +
			"9 covers it, but on tcp/443 alone; to allow it write under spec.egress of shop/allow-out: - {matches: [{name: a.cdn.test}], ports: [{protocol: UDP}]}"},
		{"cart", "evil.test/icmp", "deployment shop/cart to evil.test/icmp: denied: no match of shop/allow-out, shop/watch covers evil.test, and its question gets NXDomain; " +
			"to allow it write under spec.egress of shop/allow-out: - {matches: [{name: evil.test}]}"},
		{"cart", "api.example.org:8080", "deployment shop/cart to api.example.org:8080/tcp: denied: shop/watch spec.egress[0].matches[0] (api.example.org) " + here +
			"24 covers it, but an Audit policy opens nothing, and its question gets NXDomain; to allow it write under spec.egress of shop/allow-out: - {matches: [{name: api.example.org}], ports: [{protocol: TCP, port: 8080}]}"},
		{"batch", "api.example.org:8080", "cronjob shop/batch to api.example.org:8080/tcp: allowed: shop/watch spec.egress[0].matches[0] (api.example.org) " + here + "24"},
		{"batch", "evil.test:443", "cronjob shop/batch to evil.test:443/tcp: would-deny: no match of shop/watch covers evil.test; it passes as long as all of these policies are Audit; " +
			"to allow it write under spec.egress of shop/watch: - {matches: [{name: evil.test}], ports: [{protocol: TCP, port: 443}]}"},
		{"free", "evil.test:443", "pod shop/free to evil.test:443/tcp: allowed: no policy selects the pod, so everything is allowed"},
		{"node", "evil.test:443", "daemonset shop/node to evil.test:443/tcp: allowed: the pod uses the host network, where only policies for nodes hold: ask with --node and the labels of its node"},
	} {
		m := shop(t)
		q, err := ParseQuestion(c.to)
		fatal.If(t, err)
		pods := m.PodsNamed("shop", c.pod)
		if len(pods) != 1 {
			t.Fatalf("%d pods %s", len(pods), c.pod)
		}
		if got := m.Ask(pods[0], q, Options{ClusterDomain: "cluster.local"}).String(); got != c.want {
			t.Errorf("%s to %s:\n says %s\nnot %s", c.pod, c.to, got, c.want)
		}
	}
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
	const leads = "; partner.shop.svc.cluster.local leads to api.partner.example, which is decided in its place"
	for rule, want := range map[string]string{
		"Accept api.partner.example":            "allowed: admin spec.egress[0].matches[0] (api.partner.example) at stdin:14",
		"Accept partner.shop.svc.cluster.local": "denied: Admin policy admin spec.egress[2] at stdin:16 denies it",
		"Deny partner.shop.svc.cluster.local":   "denied: Admin policy admin spec.egress[0] at stdin:14 denies it, and its question gets NXDomain",
	} {
		action, name, _ := strings.Cut(rule, " ")
		m := manifests(t, strings.NewReplacer("RULE", action, "NAME", name).Replace(manifest))
		q, err := ParseQuestion("partner.shop.svc.cluster.local:443")
		fatal.If(t, err)
		pod, err := PodWith("shop", "app=cart")
		fatal.If(t, err)
		got := m.Ask(pod, q, Options{ClusterDomain: "cluster.local"})
		if text := got.Verdict + ": " + got.Message; text != want+leads {
			t.Errorf("%s: %s", rule, text)
		}
	}
}

// TestAskLimited: a name whose query a limit refuses is not reached by its addresses.
func TestAskLimited(t *testing.T) {
	for limits, want := range map[policy.DNSLimits]string{
		{Withheld: ^policy.QueryTypes(0)}: "denied: a query for its addresses gets an empty answer: the policies answer queries of the types (none) alone (dns.types)",
		{MaxLabels: 1}:                    "denied: its question gets REFUSED: it has 2 labels below cdn.test, and the policies allow 1 (dns.maxLabels); list it as name in the tier of the limit, or in an earlier tier",
		{MaxLabels: 2, MaxRate: 1}:        "allowed: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) at testdata/shop.yaml:9",
	} {
		m := shop(t)
		in := m.input()
		in.Pods = []policy.Pod{m.PodsNamed("shop", "cart")[0].Pod}
		for i := range in.Policies {
			in.Policies[i].Spec.Egress = slices.Clone(in.Policies[i].Spec.Egress)
		}
		deep := "**.cdn.test"
		in.Policies[0].Spec.Egress[0].Matches[1].Pattern = &deep
		snap := compile.New().Compile(in)
		view := *snap.Views[0]
		view.Limits = limits
		q, err := ParseQuestion("a.b.cdn.test:443")
		fatal.If(t, err)
		a := Answer{Pod: "x", To: q.String(), Verdict: allowed}
		m.answer(&a, snap, &view, q, Options{ClusterDomain: "cluster.local"})
		if got, _ := strings.CutPrefix(a.String(), "x to a.b.cdn.test:443/tcp: "); got != strings.Replace(want, "(*.cdn.test)", "(**.cdn.test)", 1) {
			t.Errorf("%+v:\n%s\nwant\n%s", limits, got, want)
		}
	}
}

func TestPodWith(t *testing.T) {
	pod, err := PodWith("shop", "app=cart,tier=front")
	fatal.If(t, err)
	q, _ := ParseQuestion("www.example.org:443")
	if got := shop(t).Ask(pod, q, Options{ClusterDomain: "cluster.local"}).String(); !strings.HasPrefix(got, "a pod of shop with app=cart,tier=front to www.example.org:443/tcp: allowed: shop/allow-out ") {
		t.Error(got)
	}
	if _, err := PodWith("shop", "cart"); err == nil || !strings.Contains(err.Error(), "write KEY=VALUE") {
		t.Error(err)
	}
}

func TestParseQuestion(t *testing.T) {
	for text, want := range map[string]string{
		"www.example.org":      "www.example.org",
		"WWW.example.org.:443": "www.example.org:443/tcp",
		"example.org:53/UDP":   "example.org:53/udp",
		"example.org/sctp":     "example.org/sctp",
		"example.org/icmp":     "example.org/icmp",
		"":                     `nothing is written; write a name such as www.example.org`,
		"*.example.org":        `"*.example.org" is a pattern; write one name that it is to cover`,
		"bücher.example:443":   `"bücher.example" is not ASCII; write xn--bcher-kva.example`,
		"example.org:0":        `"example.org:0": "0" is no port; write 1 to 65535`,
		"example.org:65536":    `"example.org:65536": "65536" is no port; write 1 to 65535`,
		"https://example.org":  `"https://example.org" is a URL; write its host alone, as in www.example.org:443`,
		"example.org:443/http": `"example.org:443/http": protocol "http" is not known; write tcp, udp, sctp or icmp`,
		"example.org:7/icmp":   `"example.org:7/icmp": ICMP has no ports; leave :7 out`,
		"192.0.2.1":            `"192.0.2.1" is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name`,
		"192.0.2.1:443/tcp":    `"192.0.2.1:443/tcp" is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name`,
		"[2001:db8::1]:443":    `"[2001:db8::1]:443" is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name`,
		"2001:db8::1":          `"2001:db8::1" is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name`,
	} {
		q, err := ParseQuestion(text)
		got := q.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n says %s\nnot %s", text, got, want)
		}
		if again, err2 := ParseQuestion(got); err == nil && (err2 != nil || again != q) {
			t.Errorf("%q is read back as %v, %v", got, again, err2)
		}
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
	const full = "; pods ask for %s as db.shop.svc.cluster.local"
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
		q, err := ParseQuestion(c.to + ":5432")
		fatal.If(t, err)
		a := manifests(t, strings.ReplaceAll(text, "NAME", c.allows)).Ask(pod, q, Options{ClusterDomain: "cluster.local"})
		if says := strings.ReplaceAll(c.says, "%s", c.to); a.Verdict != c.verdict || !strings.Contains(a.Message, says) || says == "" && strings.Contains(a.Message, "pods ask") {
			t.Errorf("%s with a rule for %s: %s", c.to, c.allows, a)
		}
	}
	node, err := NodeWith("")
	fatal.If(t, err)
	edge := "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: e}\nspec: {tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}\n"
	q, err := ParseQuestion("registry.corp.svc")
	fatal.If(t, err)
	if a := manifests(t, edge).Ask(node, q, Options{ClusterDomain: "cluster.local"}); strings.Contains(a.Message, "ask for") {
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
	verdicts := map[string]int{}
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
			q, err := ParseQuestion(to)
			fatal.If(t, err)
			want := map[bool]string{true: "denied", false: "would-deny"}[enforced]
			for _, rule := range rules {
				if rule.pattern.Matches(q.Name) && within(q, rule.set) && (!enforced || !rule.audit) {
					want = "allowed"
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
func within(q Question, set policy.PortSet) bool {
	return slices.ContainsFunc(set.Ranges(), func(r policy.PortRange) bool {
		return r.Protocol == policy.AnyProtocol || (q.Protocol == policy.AnyProtocol || q.Protocol == r.Protocol) && (q.Port == 0 || r.First <= q.Port && q.Port <= r.Last)
	})
}
