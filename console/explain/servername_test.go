package explain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

const requires = `
metadata: {name: base}
spec:
  podSelector: {matchLabels: {app: cart}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.cdn.test"}, {name: web.pay.svc.cluster.local}]
    ports: [{protocol: TCP, port: 443}]
    serverName: Require
`

// granted are the grants that an answer with the address for a name makes.
func granted(f *Facts, n, addr string) (out []policy.GrantInfo) {
	d := policy.Decide(f.View, policy.Query{Name: policytest.Name(n)})
	for _, o := range d.Openings(60) {
		out = append(out, policy.GrantInfo{Pod: f.Pod.PodRef, Addr: netip.MustParseAddr(addr), Ports: o.Ports, Rule: o.Rule, Name: o.Name, Until: noon.Add(time.Minute), By: strings.Join(o.By, ",")})
	}
	return out
}

// TestServerName: what is open by a rule that requires the server name is checked, with the names that the pod holds.
func TestServerName(t *testing.T) {
	const plain = "---\nmetadata: {name: plain}\nspec:\n  podSelector: {}\n  egress:\n  - matches: [{name: www.example.org}]\n    ports: [{protocol: TCP, port: 443}]\n"
	const names = "the address is open on tcp/443 until 2026-05-01T12:01:00Z; checked: the connection must begin with a TLS server name that is one of www.example.org, a.cdn.test"
	seen := recent.Sighting{Pod: cart().PodRef, Name: policytest.Name("www.example.org"), Address: netip.MustParseAddr("192.0.2.1"), Asked: noon.Add(-time.Hour)}
	for _, c := range []struct {
		what, to, policies string
		facts              func(*Facts)
		verdict            Verdict
		reason             string
	}{
		{"a name", "www.example.org:443", requires, func(f *Facts) { f.Open = granted(f, "www.example.org", "192.0.2.1") }, Checked,
			"the pod asked for the name, and 1 address is open on tcp/443 until 2026-05-01T12:01:00Z; checked: the connection must begin with a TLS server name that is one of www.example.org"},
		{"an address of two names", "192.0.2.1:443", requires, func(f *Facts) {
			f.Open = slices.Concat(granted(f, "www.example.org", "192.0.2.1"), granted(f, "a.cdn.test", "192.0.2.1"), granted(f, "b.cdn.test", "192.0.2.2"))
		}, Checked, names},
		{"any port of it", "192.0.2.1", requires, func(f *Facts) { f.Open = granted(f, "www.example.org", "192.0.2.1") }, Checked, strings.TrimSuffix(names, ", a.cdn.test")},
		{"another port of it", "192.0.2.1:80", requires, func(f *Facts) { f.Open = granted(f, "www.example.org", "192.0.2.1") }, Denied,
			`"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not on tcp/80`},
		{"a name that a plain rule opens too", "www.example.org:443", requires + plain, func(f *Facts) { f.Open = granted(f, "www.example.org", "192.0.2.1") }, Allowed,
			"the pod asked for the name, and 1 address is open on tcp/443 until 2026-05-01T12:01:00Z"},
		{"a name that was not asked for", "a.cdn.test:443", requires, nil, OnceAsked,
			`"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers the name on tcp/443; its addresses are opened when the pod asks for it; checked: the connection must begin with the TLS server name a.cdn.test`},
		{"an address whose time is over", "192.0.2.1:443", requires, func(f *Facts) { f.Seen = []recent.Sighting{seen} }, OnceAsked,
			`"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org, whose address this is, on tcp/443; it is opened when the pod asks for the name; checked: the connection must begin with the TLS server name www.example.org`},
		{"of manifests", "a.cdn.test:443", requires, func(f *Facts) { f.Unresolved = true }, Checked,
			`"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers the name on tcp/443; its addresses are opened when the pod asks for it; checked: the connection must begin with the TLS server name a.cdn.test`},
		{"a name of the cluster", "web.pay.svc.cluster.local:443", requires, nil, Denied,
			`"web.pay.svc.cluster.local" of shop/base (spec.egress[0].matches[2]) covers web.pay.svc.cluster.local, but requires the server name: such a rule opens no address of the cluster`},
		{"an address of the cluster", "192.0.2.1:443", requires, func(f *Facts) { f.Seen, f.Inside = []recent.Sighting{seen}, "node" }, Denied,
			`"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org, but requires the server name: such a rule opens no address of the cluster`},
		{"with Audit nothing is checked", "www.example.org:443", strings.Replace(requires, "egress:", "enforcement: Audit\n  egress:", 1), nil, Allowed,
			`only Audit policies select the pod, so it passes; enforced, it would be allowed: "www.example.org" of shop/base (spec.egress[0].matches[0]) covers the name on tcp/443; its addresses are opened when the pod asks for it`},
	} {
		f := about(t, cart(), manifests(t, c.policies))
		if c.facts != nil {
			c.facts(&f)
		}
		e := Explain(Question{To: target(t, c.to)}, f)
		diff.Error(t, fmt.Sprint(c.verdict, ": ", c.reason), fmt.Sprint(e.Verdict, ": ", e.Reason), c.what)
	}
}

// TestServerNameInOrder: the rules in order say which one requires the server name, also to callers who may not read it.
func TestServerNameInOrder(t *testing.T) {
	checked := clusterRule(t, policy.Admin, policy.Accept, "checked", "tcp/443", "www.example.org")
	checked.ServerName = true
	checked.ID = checked.NewID()
	rest := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Ports: policy.AnyPort, Policy: "rest", Path: "spec.egress[0]"}
	f := about(t, cart(), manifests(t, base))
	under(&f, []*policy.Rule{checked, rest}, nil)
	f.Open = granted(&f, "www.example.org", "192.0.2.1")
	e := Explain(Question{To: target(t, "www.example.org:443")}, f)
	if want := "Admin Accept, on tcp/443, serverName: Require: decides"; e.Verdict != Checked || len(e.Rules) == 0 || e.Rules[0].String() != want {
		t.Errorf("%s: %s: %v", e.Verdict, e.Reason, e.Rules)
	}
	if e := Explain(Question{To: target(t, "192.0.2.1:80")}, f); e.Verdict != Denied {
		t.Errorf("%s: %s", e.Verdict, e.Reason)
	}
	f.Flows = []audit.Flow{{Dialled: netip.MustParseAddrPort("192.0.2.1:443"), Protocol: policy.TCP, Reason: audit.ReasonServerName, ServerName: "evil.test", Rule: checked}}
	e = Explain(Question{To: target(t, "192.0.2.1:443")}, f)
	if len(e.Flows) != 1 || e.Flows[0].ServerName != "evil.test" || e.Flows[0].By != "a cluster policy (Admin)" {
		t.Errorf("%+v", e.Flows)
	}
}

// TestServerNameTwin: an address is checked where the evaluation says so, and its names are those that evaluate to that
// alone.
func TestServerNameTwin(t *testing.T) {
	seen := map[policy.Verdict]int{}
	for seed := range uint64(short.Rounds(500, 2_000, 10_000)) {
		d := draw{rand.New(rand.NewPCG(seed, 2))}
		var policies []*v1alpha1.FQDNNetworkPolicy
		for i := range 1 + d.IntN(4) {
			p := d.policy(i)
			p.Spec.Enforcement, p.Spec.PodSelector.MatchLabels, p.Spec.PodSelector.MatchExpressions = "", nil, nil
			policies = append(policies, p)
		}
		f := about(t, cart(), policies)
		at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1+d.IntN(4)))
		flow := policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at}
		for range 1 + d.IntN(2) {
			f.Open = append(f.Open, granted(&f, d.name(), "192.0.2.1")...)
		}
		var names []string
		for i := range f.Open {
			flow.EnterGrant(f.View, &f.Open[i])
			alone := policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at}
			alone.EnterGrant(f.View, &f.Open[i])
			if n := f.Open[i].Name.String(); policy.VerdictOf(policy.Evaluate(f.View, f.Snapshot, &alone)) == policy.CheckFlow && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
		want := policy.VerdictOf(policy.Evaluate(f.View, f.Snapshot, &flow))
		seen[want]++
		e := Explain(Question{To: target(t, at.String())}, f)
		got := map[Verdict]policy.Verdict{Allowed: policy.AllowFlow, Checked: policy.CheckFlow}[e.Verdict]
		if _, list, _ := strings.Cut(e.Reason, " that is one of "); got != want || got == policy.CheckFlow && !sameNames(list, names) {
			t.Fatalf("seed %d: %s: %s; the evaluation says %d, names %s", seed, e.Verdict, e.Reason, want, names)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

func sameNames(list string, names []string) bool {
	listed := strings.Split(list, ", ")
	slices.Sort(listed)
	slices.Sort(names)
	return slices.Equal(listed, names)
}
