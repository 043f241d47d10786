package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestNamesThatLeadAreExplained: the target's name counts as each name that led the pod to it,
// for rules that deny also as an alias that did.
func TestNamesThatLeadAreExplained(t *testing.T) {
	const paste, registry = "x.paste.test", "registry.test"
	for _, c := range []struct {
		via, aliases []string
		verdict      Verdict
		decides      string
	}{
		{nil, nil, Denied, ""},
		{[]string{registry}, nil, OnceAsked, "Admin Accept by admin (spec.egress[2])"},
		{[]string{registry, paste}, nil, Denied, "Admin Deny by admin (spec.egress[0], \"pastes\")"},
		{[]string{paste, registry}, nil, Denied, "Admin Deny by admin (spec.egress[0], \"pastes\")"},
		{[]string{registry}, []string{paste}, Denied, "Admin Deny by admin (spec.egress[0], \"pastes\")"},
		{nil, []string{registry}, Denied, ""},
	} {
		f := allKinds(t, cart())
		names := func(texts []string) (out []fqdn.Name) {
			for _, n := range texts {
				out = append(out, policytest.Name(n))
			}
			return out
		}
		f.Via, f.Aliases = names(c.via), names(c.aliases)
		e := Explain(Question{To: target(t, "host.test:443")}, f)
		decides := slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Decides && strings.HasPrefix(r.String(), c.decides) })
		if e.Verdict != c.verdict || c.decides != "" && !decides {
			t.Errorf("led by %q and %q: %s: %s, %v", c.via, c.aliases, e.Verdict, e.Reason, e.Rules)
		}
		for _, n := range slices.Concat(c.via, c.aliases) {
			if !strings.Contains(strings.Join(e.Notes, "\n"), n) {
				t.Errorf("led by %q: not said: %q", n, e.Notes)
			}
		}
	}
}

// TestDeniedResolversAreExplained: with the rule, as far as the caller may see it.
func TestDeniedResolversAreExplained(t *testing.T) {
	f := allKinds(t, cart())
	f.Resolvers = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("10.96.0.12")}
	by := f.View.Rules.Admin[0]
	f.DeniesResolver = func(a netip.Addr) (bool, *policy.Rule) {
		return a != f.Resolvers[1], map[netip.Addr]*policy.Rule{f.Resolvers[0]: by}[a]
	}
	const refused = ": the pod's queries to it are REFUSED, for every name"
	for sees, rule := range map[bool]string{true: `Admin policy admin (spec.egress[0], "pastes")`, false: Hidden("Admin")} {
		if f.SeesCluster = nil; sees {
			f.SeesCluster = everyKind
		}
		notes := Explain(Question{To: target(t, "www.example.org:443")}, f).Notes
		for _, want := range []string{rule + " denies the resolver 10.96.0.10" + refused, "no NetworkPolicy allows the resolver 10.96.0.12" + refused} {
			if !slices.Contains(notes, want) {
				t.Errorf("%q is not said: %q", want, notes)
			}
		}
		if strings.Contains(strings.Join(notes, " "), "10.96.0.11") {
			t.Errorf("said of a resolver that is allowed: %q", notes)
		}
	}
}
