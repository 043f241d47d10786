package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// aboutNode returns the facts of a node under a policy for nodes, and asks with the right to read it.
func aboutNode(t *testing.T, enforcement string) Facts {
	t.Helper()
	p := policytest.NodePolicy(t, "workers", "{nodeSelector: {}, priority: 1, enforcement: "+enforcement+", egress: ["+
		"{action: Accept, matches: [{name: registry.test}], ports: [{protocol: TCP, port: 443}]}, {name: rest, action: Deny}]}")
	node := &policy.Node{Name: "n1", Interfaces: []string{"eth0"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Failsafes: []policy.Failsafe{{
		Name: "nodes", Out: true, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}}}}
	f := about(t, policy.Pod{PodRef: policy.NodeRef("n1")}, nil)
	f.Snapshot = compile.New().Compile(compile.Input{NodePolicies: []*v1alpha1.NodeNetworkPolicy{p}, Node: node})
	f.View, f.SeesCluster = f.Snapshot.Node(), func(string) bool { return true }
	return f
}

// TestNodes: what decides for a node: its own addresses and failsafes first, then the rules.
func TestNodes(t *testing.T) {
	open := policy.GrantInfo{Pod: policy.NodeRef("n1"), Name: policytest.Name("registry.test"), Addr: netip.MustParseAddr("198.51.100.1"), Until: noon.Add(time.Hour), By: "nodenetworkpolicy:workers registry.test"}
	for _, c := range []struct {
		enforcement, to string
		verdict         Verdict
		says, advice    string
	}{
		{"Enforce", "192.0.2.3:10250", Allowed, "failsafe nodes: TCP 10250: no rule denies it", ""},
		{"Enforce", "192.0.2.7:80", Allowed, "the node's own address", ""},
		{"Enforce", "192.0.2.3:22", Denied, "workers", "networks: [192.0.2.3/32]}; `namegate check --node` tries it"},
		{"Enforce", "198.51.100.1:443", Allowed, "the node asked for registry.test", ""},
		{"Enforce", "registry.test:443", Allowed, "", ""},
		{"Enforce", "other.test:443", Denied, "workers", "matches: [{name: other.test}]"},
		{"Audit", "other.test:443", WouldDeny, "only Audit policies select the node", "matches: [{name: other.test}]"},
	} {
		f := aboutNode(t, c.enforcement)
		rule := f.View.Rules.Admin[0]
		open.Rule, open.Ports = rule.ID, rule.Ports
		if c.enforcement == "Enforce" {
			f.Open = []policy.GrantInfo{open}
		}
		to, err := ParseTarget(c.to)
		fatal.If(t, err)
		e := Explain(Question{Node: "n1", To: to}, f)
		do := ""
		if e.Advice != nil {
			do = strings.Join(e.Advice.Do, "\n")
			if e.Advice.Manifest != "" || e.Advice.NetworkPolicy != "" {
				t.Errorf("%s: %+v", c.to, e.Advice)
			}
		}
		if e.Verdict != c.verdict || !strings.Contains(e.Reason, c.says) || !strings.Contains(do, c.advice) || (c.advice == "") != (do == "") || strings.Contains(e.Reason, "the pod") || e.Pod != "node n1" {
			t.Errorf("%s %s: %s: %s\n%s", c.enforcement, c.to, e.Verdict, e.Reason, do)
		}
	}
	f := aboutNode(t, "Enforce")
	to, _ := ParseTarget("192.0.2.3:22")
	if notes := Explain(Question{Node: "n1", To: to}, f).Notes; len(notes) != 2 || !strings.HasPrefix(notes[0], "failsafe always: ") || notes[1] != "failsafe nodes: TCP 10250 to 192.0.2.0/28" {
		t.Errorf("the table: %q", notes)
	}
	f.View = nil
	to, _ = ParseTarget("other.test:443")
	if e := Explain(Question{To: to}, f); e.Verdict != Allowed || e.Reason != "no policy selects the node: everything is allowed" {
		t.Errorf("%+v", e)
	}
}

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
			diff.Has(t, n, strings.Join(e.Notes, "\n"), "not said")
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
