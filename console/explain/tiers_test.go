package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// clusterRule is a rule of a cluster policy by names.
func clusterRule(t *testing.T, tier policy.Tier, action policy.Action, id string, ports policy.PortSet, names ...string) *policy.Rule {
	t.Helper()
	r := &policy.Rule{Tier: tier, Action: action, Ports: ports, Policy: id, Path: "spec.egress[0]", Denial: policy.Denial{DNSDenied: policy.NXDomain}}
	for i, n := range names {
		p, err := fqdn.ParsePattern(n)
		fatal.If(t, err)
		r.Peer.Kind = policy.PeerNames
		r.Matches = append(r.Matches, policy.NewMatch(r, r.Path+".matches[0]", p, i))
	}
	return r
}

// under gives the pod of facts rules of cluster policies around its own, whose priorities
// are their places.
func under(f *Facts, admin, baseline []*policy.Rule) {
	view := *f.View
	for _, rules := range [][]*policy.Rule{admin, baseline} {
		for i, r := range rules {
			r.Priority = int32(i)
		}
	}
	view.Rules.Admin, view.Rules.Baseline = admin, baseline
	view.Index = policy.NewIndex(slices.Collect(view.Rules.All()), 0)
	f.View = &view
}

func everyKind(string) bool { return true }

// TestTiers: the rules are listed in the order in which they are asked, with the one that
// decides, and the answer names it to callers who may read cluster policies.
func TestTiers(t *testing.T) {
	nets := rule(policy.PeerNetworks, "198.51.100.0/24", policy.AnyPort, "0")
	nets.Tier, nets.Action, nets.Policy = policy.Admin, policy.Deny, "no-nets"
	broken := &policy.Rule{Tier: policy.Admin, Action: policy.Pass, Ports: policy.AnyPort, Policy: "broken", Path: "spec.egress[0]", Broken: true}
	rest := &policy.Rule{Tier: policy.Baseline, Action: policy.Deny, Ports: policy.AnyPort, Policy: "closed", Path: "spec.egress[0]"}
	admin := []*policy.Rule{
		clusterRule(t, policy.Admin, policy.Pass, "passes", policy.AnyPort, "www.example.org"),
		clusterRule(t, policy.Admin, policy.Accept, "registry", "tcp/443", "registry.test"),
		clusterRule(t, policy.Admin, policy.Deny, "no-pastes", policy.AnyPort, "**.paste.test", "www.example.org"),
		clusterRule(t, policy.Admin, policy.Deny, "no-smtp", "tcp/25", "a.cdn.test"), nets,
	}
	granted := func(n, a, ports, by string) policy.GrantInfo {
		return policy.GrantInfo{Pod: cart().PodRef, Addr: netip.MustParseAddr(a), Ports: policy.PortSet(ports), Name: policytest.Name(n), Until: noon.Add(time.Minute), By: by}
	}
	for _, c := range []struct {
		what, to string
		alone    bool // no policy of the namespace selects the pod
		admin    []*policy.Rule
		facts    func(*Facts)
		verdict  Verdict
		reason   string
		rules    []string
	}{
		{what: "denied by name", to: "x.paste.test:443", verdict: Denied, reason: "Admin policy no-pastes (spec.egress[0]) denies x.paste.test; its question gets NXDOMAIN (dns.denied: NXDomain)",
			rules: []string{"Admin Deny by no-pastes (spec.egress[0]) to names, on any: decides"}},
		{what: "accepted by name", to: "registry.test:443", verdict: OnceAsked, reason: `"registry.test" of registry (spec.egress[0].matches[0]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
			rules: []string{"Admin Accept by registry (spec.egress[0]) to names, on tcp/443: decides"}},
		{what: "accepted by name, and open", to: "203.0.113.5:443", verdict: Allowed, reason: "the pod asked for registry.test, and the address is open on tcp/443 until 2026-05-01T12:01:00Z",
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{granted("registry.test", "203.0.113.5", "tcp/443", "registry registry.test")}
			},
			rules: []string{"Admin Accept by registry (spec.egress[0]) to names, on tcp/443: decides"}},
		{what: "passed to the namespace", to: "www.example.org:443", verdict: OnceAsked, reason: `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
			rules: []string{"Admin Pass by passes (spec.egress[0]) to names, on any", "Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443: decides"}},
		{what: "denied on one port", to: "a.cdn.test:25", verdict: Denied, reason: "Admin policy no-smtp (spec.egress[0]) denies a.cdn.test",
			rules: []string{"Admin Deny by no-smtp (spec.egress[0]) to names, on tcp/25: decides", "Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443, not on this port"}},
		{what: "not denied on another", to: "a.cdn.test:443", verdict: OnceAsked, reason: `"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
			rules: []string{"Admin Deny by no-smtp (spec.egress[0]) to names, on tcp/25, not on this port", "Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443: decides"}},
		{what: "denied by network, for all that is open by name", to: "198.51.100.7:443", verdict: Denied, reason: "Admin policy no-nets (spec.egress[0]) denies 198.51.100.7",
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{granted("b.cdn.test", "198.51.100.7", "tcp/443", "shop/base *.cdn.test")}
			},
			rules: []string{"Admin Deny by no-nets (spec.egress[0]) to 198.51.100.0/24, on any: decides", "Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443"}},
		{what: "not covered", to: "bank.test:443", verdict: Denied, reason: "no match of the pod's policies covers the name"},
		{what: "broken", to: "www.example.org:443", admin: []*policy.Rule{broken}, verdict: Denied, reason: "Admin policy broken (spec.egress[0]) denies www.example.org: a part of it cannot be read",
			rules: []string{"Admin Deny by broken (spec.egress[0]) to everywhere, on any, broken: decides", "Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443"}},
		{what: "denied by default", to: "bank.test:443", alone: true, verdict: Denied, reason: "Baseline policy closed (spec.egress[0]) denies bank.test",
			rules: []string{"Baseline Deny by closed (spec.egress[0]) to everywhere, on any: decides"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := about(t, cart(), manifests(t, base))
			beside(&f)
			if f.SeesCluster = everyKind; c.alone {
				view := *f.View
				view.Enforced, view.Policies, view.Rules = false, nil, policy.Rules{}
				f.View = &view
			}
			if c.admin == nil {
				c.admin = admin
			}
			under(&f, c.admin, []*policy.Rule{rest})
			if c.facts != nil {
				c.facts(&f)
			}
			e := Explain(Question{To: target(t, c.to)}, f)
			var rules []string
			for _, r := range e.Rules {
				rules = append(rules, r.String())
			}
			if d := cmp.Diff(c.rules, rules); e.Verdict != c.verdict || e.Reason != c.reason || d != "" {
				t.Errorf("%s: %s\n%s", e.Verdict, e.Reason, d)
			}
			f.SeesCluster = nil
			e = Explain(Question{To: target(t, c.to)}, f)
			text := strings.Join(append(e.Notes, e.Reason), "; ")
			for _, r := range e.Rules {
				text += r.String()
			}
			for _, m := range e.Matches {
				text += m.Policy
			}
			for _, g := range e.Open {
				text += g.By
			}
			for _, secret := range []string{"no-", "registry (", "registry registry", "passes", "broken (", "closed", "paste.test of"} {
				if strings.Contains(text, secret) {
					t.Errorf("whoever may not read cluster policies is told %q: %s", secret, text)
				}
			}
		})
	}
}

// TestDefaultAllowed: without a policy of a namespace what no cluster policy denies is allowed.
func TestDefaultAllowed(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	beside(&f)
	view := *f.View
	view.Enforced, view.Policies, view.Rules = false, nil, policy.Rules{}
	f.View = &view
	under(&f, []*policy.Rule{clusterRule(t, policy.Admin, policy.Deny, "no-pastes", policy.AnyPort, "**.paste.test")}, nil)
	for to, what := range map[string]string{"bank.test:443": "bank.test", "db.shop.svc.cluster.local:80": "10.96.0.5, the address of the name, behind the Service shop/db", "203.0.113.7": "203.0.113.7", "10.96.0.6:80": "10.96.0.6, behind the Service shop/empty"} {
		e := Explain(Question{To: target(t, to)}, f)
		if want := "no rule of a cluster policy denies " + what + ", and no other policy selects the pod"; e.Verdict != Allowed || e.Reason != want {
			t.Errorf("%s: %s: %s, want %s", to, e.Verdict, e.Reason, want)
		}
	}
}

// TestHiddenInAdvice: for a name that is allowed on other ports, advice names the rule that allows
// it to callers who may read that, and no rule that denies.
func TestHiddenInAdvice(t *testing.T) {
	admin := []*policy.Rule{
		clusterRule(t, policy.Admin, policy.Accept, "registry", "tcp/443", "registry.test"), clusterRule(t, policy.Admin, policy.Deny, "no-mail", "tcp/25", "mail.test"),
	}
	const rule = "or add the port to the rule of "
	for _, c := range []struct {
		to    string
		sees  func(string) bool
		names string // the rule
	}{
		{"registry.test:80", everyKind, rule + "registry (spec.egress[0])"}, {"registry.test:80", nil, ""},
		{"mail.test:80", everyKind, ""}, {"mail.test:80", nil, ""},
	} {
		f := about(t, cart(), manifests(t, base))
		beside(&f)
		under(&f, admin, nil)
		f.SeesCluster = c.sees
		e := Explain(Question{To: target(t, c.to)}, f)
		do := strings.Join(e.Advice.Do, "; ")
		if e.Verdict != Denied || e.Advice.Manifest == "" || strings.Contains(do, rule) != (c.names != "") || !strings.Contains(do, c.names) {
			t.Errorf("%s, of all kinds %t: %s: %s; want %q", c.to, c.sees != nil, e.Verdict, do, c.names)
		}
	}
}

// TestPermissiveNetworkPolicy: explain says that a NetworkPolicy voids the pod's list, and what to apply.
func TestPermissiveNetworkPolicy(t *testing.T) {
	const voids = "PermissiveNetworkPolicy: NetworkPolicy shop/controller (spec.egress[0]) opens every address outside on any to pods of shop/base, so that"
	for rules, want := range map[string]bool{"[{}]": true, "[]": false, "[{to: [{podSelector: {}}]}]": false} {
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte("{metadata: {name: controller, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: "+rules+"}}"), &n))
		pod, policies := cart(), manifests(t, base+"---"+watch)
		f := about(t, pod, policies)
		f.Snapshot = compile.New().Compile(compile.Input{Policies: policies, NetworkPolicies: []*networkingv1.NetworkPolicy{&n}, Pods: []policy.Pod{pod}})
		f.View = f.Snapshot.ViewOf(pod.PodRef)
		for _, to := range []string{"203.0.113.7:443", "www.example.org:443", "other.test"} {
			notes := strings.Join(Explain(Question{To: target(t, to)}, f).Notes, ";")
			if strings.Contains(notes, voids) != want || strings.Contains(notes, " apply: {") != want {
				t.Errorf("%s, %s: %q", rules, to, notes)
			}
		}
	}
}
