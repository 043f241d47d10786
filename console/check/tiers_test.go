package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestAskInOrder: beside rules of cluster policies an answer has all that may match, in
// the order in which they are asked, with the one that decides.
func TestAskInOrder(t *testing.T) {
	pattern, err := fqdn.ParsePattern("*.cdn.test")
	fatal.If(t, err)
	smtp := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: "tcp/25", Policy: "no-smtp", Path: "spec.egress[0]"}
	smtp.Matches = []*policy.Match{policy.NewMatch(policy.Match{Policy: "no-smtp", Path: "spec.egress[0].matches[0]", Pattern: pattern, Ports: "tcp/25", Rule: smtp}, 0)}
	pattern, err = fqdn.ParsePattern("evil.test")
	fatal.If(t, err)
	evil := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "no-evil", Path: "spec.egress[1]", DNSDenied: policy.Refuse}
	evil.Matches = []*policy.Match{policy.NewMatch(policy.Match{Policy: "no-evil", Path: "spec.egress[1].matches[0]", Pattern: pattern, Ports: policy.AnyPort, Rule: evil}, 0)}
	ntp := &policy.Rule{Tier: policy.Admin, Ports: "udp/123", Policy: "ntp", Path: "spec.egress[2]"}
	nets := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNetworks, Key: "192.0.2.0/24"}, Ports: policy.AnyPort, Policy: "no-nets", Path: "spec.egress[3]"}

	m := shop(t)
	pod := m.PodsNamed("shop", "cart")[0]
	in := m.input()
	in.Pods = []policy.Pod{pod.Pod}
	snap := compile.New().Compile(in)
	view := *snap.ViewOf(pod.PodRef)
	view.Rules.Admin = []*policy.Rule{smtp, evil, ntp, nets}
	view.Index = policy.NewIndex(slices.Collect(view.Rules.All()), 10)
	const smtpStep, maybe = "Admin Deny by no-smtp (spec.egress[0]) to names, on tcp/25", "Admin Deny by no-nets (spec.egress[3]) to 192.0.2.0/24, on any"
	const off, ntpOff = ", not on this port", "Admin Accept by ntp (spec.egress[2]) to everywhere, on udp/123, not on this port"
	const cdn = "Namespace Accept by shop/allow-out (spec.egress[0]) to names, on tcp/443"
	const evilStep = "Admin Deny by no-evil (spec.egress[1]) to names, on any: decides"
	for to, want := range map[string][]string{
		"a.cdn.test:25": {"x to a.cdn.test:25/tcp: denied: Admin policy no-smtp spec.egress[0] denies it", smtpStep + ": decides", ntpOff, maybe, cdn + off},
		"a.cdn.test:443": {"x to a.cdn.test:443/tcp: allowed: shop/allow-out spec.egress[0].matches[1] (*.cdn.test) at testdata/shop.yaml:9; " +
			"Admin policy no-nets spec.egress[3] (Deny) decides first where the name leads to 192.0.2.0/24", smtpStep + off, ntpOff, maybe, cdn + ": decides"},
		"evil.test:443": {"x to evil.test:443/tcp: denied: Admin policy no-evil spec.egress[1] denies it, and its question gets Refuse", evilStep, ntpOff, maybe},
		// The policies of the namespace keep the name from being resolved.
		"other.test:123/udp": {"x to other.test:123/udp: denied: no match of shop/allow-out, shop/watch covers other.test, and its question gets NXDomain; " +
			"to allow it write under spec.egress of shop/allow-out: - {matches: [{name: other.test}], ports: [{protocol: UDP, port: 123}]}", "Admin Accept by ntp (spec.egress[2]) to everywhere, on udp/123", maybe},
	} {
		q, err := ParseQuestion(to)
		fatal.If(t, err)
		a := Answer{Pod: "x", To: q.String(), Verdict: allowed}
		m.answer(&a, snap, &view, q, Options{ClusterDomain: "cluster.local"})
		for i := range want[1:] {
			want[i+1] = fmt.Sprintf("  %d. %s", i+1, want[i+1])
		}
		if d := cmp.Diff(want, a.lines()); d != "" {
			t.Errorf("%s:\n%s", to, d)
		}
	}
}

// tiers are the manifests of testdata/tiers.yaml: policies of all four kinds.
func tiers(t *testing.T) *Manifests {
	t.Helper()
	m, err := Read([]string{"testdata/tiers.yaml"}, nil, false)
	fatal.If(t, err)
	return m
}

// TestAskAllKinds: policies of all four kinds are evaluated together, by the labels of the
// namespaces too.
func TestAskAllKinds(t *testing.T) {
	const nets = "clusternetworkpolicy:standard (spec.egress[0]) to 203.0.113.0/24, on any"
	const unless = "; Admin policy clusternetworkpolicy:standard spec.egress[0] at testdata/tiers.yaml:28 (Deny) decides first where the name leads to 203.0.113.0/24"
	const resolvers = "Admin Deny by admin (spec.egress[3]) to everywhere, on tcp/53,tcp/853,udp/53,udp/853,sctp/53,sctp/853, not on this port"
	const rest = "Baseline Deny by rest (spec.egress[0]) to everywhere, on any"
	const ntp = "Namespace Accept by shop/ntp (spec.egress[0]) to everywhere, on udp/123"
	const off = ", not on this port"
	for _, c := range []struct {
		pod, to, verdict, message string
		rules                     []string
	}{
		{"shop/cart", "x.paste.test:443", "denied", "Admin policy admin spec.egress[0] at testdata/tiers.yaml:13 denies it, and its question gets NXDomain",
			[]string{`Admin Deny by admin (spec.egress[0], "pastes") to names, on any: decides`, resolvers, "Admin Deny by " + nets, ntp + off}},
		{"shop/cart", "www.example.org:443", "allowed", "shop/out spec.egress[0].matches[0] (www.example.org) at testdata/tiers.yaml:62",
			[]string{"Admin Pass by admin (spec.egress[1]) to names, on any", "Namespace Accept by shop/out (spec.egress[0]) to names, on tcp/443: decides", ntp + off}},
		{"shop/cart", "registry.test:443", "allowed", "admin spec.egress[2].matches[0] (registry.test) at testdata/tiers.yaml:17",
			[]string{"Admin Accept by admin (spec.egress[2]) to names, on tcp/443: decides", resolvers, "Admin Deny by " + nets, ntp + off}},
		{"shop/cart", "a.b.mirror.test:80", "allowed", "clusternetworkpolicy:standard spec.egress[1].to[0].domainNames[0] (**.mirror.test) at testdata/tiers.yaml:31" + unless,
			[]string{resolvers, "Admin Deny by " + nets, "Admin Accept by clusternetworkpolicy:standard (spec.egress[1]) to names, on any: decides", ntp + off}},
		{"shop/cart", "ntp.test:123/udp", "allowed", "NetworkPolicy shop/ntp spec.egress[0] at testdata/tiers.yaml:72" + unless,
			[]string{resolvers, "Admin Deny by " + nets, ntp + ": decides"}},
		{"shop/free", "ntp.test:123/udp", "denied", "Baseline policy rest spec.egress[0] at testdata/tiers.yaml:54 denies it" + unless,
			[]string{resolvers, "Admin Deny by " + nets, rest + ": decides"}},
		{"shop/free", "dot.test:853", "denied", "Admin policy admin spec.egress[3] at testdata/tiers.yaml:18 denies it",
			[]string{strings.TrimSuffix(resolvers, off) + ": decides", "Admin Deny by " + nets, rest}},
		{"pay/other", "x.paste.test:443", "allowed", "no rule denies it, and no other policy selects the pod" + unless, []string{"Admin Deny by " + nets}},
	} {
		m := tiers(t)
		q, err := ParseQuestion(c.to)
		fatal.If(t, err)
		namespace, name, _ := strings.Cut(c.pod, "/")
		a := m.Ask(m.PodsNamed(namespace, name)[0], q, Options{ClusterDomain: "cluster.local"})
		var rules []string
		for _, r := range a.Rules {
			rules = append(rules, r.String())
		}
		if d := cmp.Diff(c.rules, rules); a.Verdict != c.verdict || a.Message != c.message || d != "" {
			t.Errorf("%s to %s: %s: %s\n%s", c.pod, c.to, a.Verdict, a.Message, d)
		}
	}
}

// TestClusterNetworkPolicies: those of the standard are read strictly, and of its version.
func TestClusterNetworkPolicies(t *testing.T) {
	const head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n"
	for text, want := range map[string][]string{
		head: nil,
		head + "  egress:\n  - action: Deny\n    to:\n    - networks: [192.0.2.1]\n": {"stdin:11: error: clusternetworkpolicy p: spec.egress[0].to[0].networks[0]: "},
		head + "  egress:\n  - action: Deny\n    too: []\n":                          {"stdin:9: error: clusternetworkpolicy p: spec.egress[0]: "},
		strings.Replace(head, "v1alpha2", "v1beta1", 1):                              {"stdin:1: error: clusternetworkpolicy p: apiVersion policy.networking.k8s.io/v1beta1 is unknown for ClusterNetworkPolicy; write policy.networking.k8s.io/v1alpha2"},
		strings.Replace(head, "name: p", "name: P", 1):                               {`stdin:1: error: clusternetworkpolicy P: metadata.name "P": `},
		head + "---\n" + head: {"stdin:11: error: clusternetworkpolicy p: metadata.name: a policy of that name is in stdin:3; remove or rename one of them"},
		strings.Replace(head, "tier: Admin", "tier: First", 1):                                           {"stdin:5: error: clusternetworkpolicy p: spec.tier: "},
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: p}\n": {"warning: no FQDNNetworkPolicy of namegate.io/v1alpha1 in 1 file; is this the right path?"},
	} {
		var got []string
		for _, line := range lint(t, text) {
			if !strings.Contains(line, "not enforced yet") {
				got = append(got, line)
			}
		}
		if !slices.EqualFunc(want, got, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
}

// TestAskOfAuditBesideClusterPolicies: a cluster policy and a NetworkPolicy isolate the pod, so
// the match of its Audit policy opens nothing.
func TestAskOfAuditBesideClusterPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	fatal.If(t, os.WriteFile(file, []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: c}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress]}}
---
{apiVersion: namegate.io/v1alpha1, kind: ClusterFQDNNetworkPolicy, metadata: {name: c}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: [192.0.2.0/24]}]}}
---
{apiVersion: namegate.io/v1alpha1, kind: FQDNNetworkPolicy, metadata: {name: watch, namespace: shop}, spec: {podSelector: {}, enforcement: Audit, egress: [{matches: [{name: www.test}]}]}}
`), 0o600))
	m, err := Read([]string{file}, nil, false)
	fatal.If(t, err)
	q, err := ParseQuestion("www.test:443")
	fatal.If(t, err)
	if got := m.Ask(m.PodsNamed("shop", "web")[0], q, Options{ClusterDomain: "cluster.local"}).String(); !strings.Contains(got, "denied") || !strings.Contains(got, "covers it, but an Audit policy opens nothing") {
		t.Error(got)
	}
}
