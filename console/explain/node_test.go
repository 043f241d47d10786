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

// allTraffic returns the facts of a pod of a node with rules of each traffic.
func allTraffic(t *testing.T) Facts {
	t.Helper()
	spec := func(text string) *v1alpha1.NodeNetworkPolicy {
		name, text, _ := strings.Cut(text, ": ")
		return policytest.NodePolicy(t, name, "{nodeSelector: {}, priority: 1, "+text+"}")
	}
	f, pods := about(t, cart(), nil), []policy.Pod{cart()}
	far := policy.Pod{PodRef: policytest.Ref("far"), NodeName: "n2", IPs: policytest.Addrs("10.2.0.9"), Labels: map[string]string{"app": "far"}}
	f.Snapshot = compile.New().Compile(compile.Input{Pods: append(pods, far), NodePolicies: []*v1alpha1.NodeNetworkPolicy{
		spec("local: ingress: [{action: Accept, networks: [192.0.2.0/24], ports: [{protocol: TCP, port: 80}]}, {name: rest, action: Deny}]"),
		spec("audited: enforcement: Audit, interfaces: [eth1], ingress: [{action: Deny, ports: [{protocol: TCP, port: 90}]}]"),
		spec("dialled: traffic: BeforeNAT, interfaces: ['eth*'], ingress: [{name: closed, action: Deny, ports: [{protocol: TCP, port: 30080}]}]"),
		spec("through: traffic: Forwarded, ingress: [{action: Deny, networks: [203.0.113.0/24]}], egress: [{action: Deny, networks: [198.51.100.0/24, 10.2.0.0/16], ports: [{protocol: TCP, port: 443}]}]"),
		spec("raw: traffic: Untracked, egress: [{action: Deny, networks: [198.51.100.9/32]}]"),
	}, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}, Addrs: policytest.Addrs("192.0.2.7 2001:db8::7"), Failsafes: []policy.Failsafe{{
		Name: "SSH", In: true, Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 22, Last: 22}}}}}})
	f.SeesCluster = everyKind
	f.Route = func(a netip.Addr) string {
		switch {
		case a == cart().IPs[0]:
			return "veth1"
		case strings.HasPrefix(a.String(), "172.16."):
			return "eth1"
		}
		return "eth0"
	}
	f.Services = map[netip.Addr]*policy.Service{netip.MustParseAddr("10.96.0.9"): {Ref: policy.ServiceRef{Namespace: "shop", Name: "far"}, Selector: map[string]string{"app": "far"}, Ports: []policy.ServicePort{{Protocol: policy.TCP, Port: 80, Target: 443}}}}
	f.Pods = slices.Values([]*policy.Pod{&far})
	return f
}

// TestToNodes: what decides for connections to a node: failsafes, then the rules of each traffic on the interface.
func TestToNodes(t *testing.T) {
	for _, c := range []struct {
		from, port string
		verdict    Verdict
		says       string
	}{
		{"203.0.113.9", "22", Allowed, "failsafe SSH: TCP 22: no rule denies it"},
		{"192.0.2.9", "80", Allowed, "NodeNetworkPolicy local (spec.ingress[0]) allows 192.0.2.9"},
		{"192.0.2.9", "81", Denied, `NodeNetworkPolicy local (spec.ingress[1], "rest") denies 192.0.2.9`},
		{"172.16.0.1", "80", Allowed, "no rule of a policy for nodes denies 172.16.0.1"},
		{"172.16.0.1", "90", WouldDeny, "NodeNetworkPolicy audited (spec.ingress[0]) denies"},
		{"172.16.0.1", "30080", Denied, `NodeNetworkPolicy dialled (spec.ingress[0], "closed") denies`},
		{"10.1.0.10", "80", Allowed, "no rule of a policy for nodes denies"},
		{"2001:db8::9", "22", Denied, "NodeNetworkPolicy local"},
	} {
		f := allTraffic(t)
		f.Pod, f.View = policy.Pod{PodRef: policy.NodeRef("n1")}, f.Snapshot.Node()
		port, err := ParsePort(c.port)
		fatal.If(t, err)
		e := Explain(Question{Node: "n1", To: port, From: &Source{Text: c.from, Addrs: policytest.Addrs(c.from)}}, f)
		decides := slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Decides && r.From != "" })
		if e.Verdict != c.verdict || !strings.Contains(e.Reason, c.says) || decides != strings.Contains(e.Reason, "NodeNetworkPolicy") || e.Interface != f.Route(netip.MustParseAddr(c.from)) || len(e.ClusterPolicies) != 5 {
			t.Errorf("%+v: %s by %s: %s\n%v", c, e.Verdict, e.Interface, e.Reason, e.Rules)
		}
		if advice := e.Advice != nil && strings.Contains(e.Advice.Do[0], "networks: ["+c.from+"/"); advice != (c.verdict == Denied || c.verdict == WouldDeny) {
			t.Errorf("%+v: %+v", c, e.Advice)
		}
	}
	f := allTraffic(t)
	f.Pod, f.View = policy.Pod{PodRef: policy.NodeRef("n1")}, f.Snapshot.Node()
	if e := Explain(Question{To: target(t, "198.51.100.9:443")}, f); e.Verdict != Denied || e.Interface != "eth0" || len(e.Rules) != 1 || e.Rules[0].String() != "Untracked Deny by NodeNetworkPolicy raw (spec.egress[0]) to 198.51.100.9/32, on any, by eth0: decides" {
		t.Errorf("%s: %s %v", e.Verdict, e.Reason, e.Rules)
	}
	if e := Explain(Question{To: Target{Port: 80, Protocol: policy.TCP}, From: &Source{Text: "node/n1", OfNode: true}}, f); e.Verdict != Allowed || !strings.Contains(e.Reason, "loopback") {
		t.Errorf("%s: %s", e.Verdict, e.Reason)
	}
}

// TestForwarded: rules of the node deny what it forwards from and to a pod, behind Services too, whatever the pod's
// policies say.
func TestForwarded(t *testing.T) {
	for _, c := range []struct {
		to, from string
		denied   bool
	}{
		{"198.51.100.7:443", "", true},
		{"198.51.100.7:80", "", false},
		{"10.96.0.9:80", "", true},
		{"far.shop.svc.cluster.local:80", "", true},
		{"far.shop.svc.cluster.local:81", "", false},
		{"10.96.0.10:53", "", false},
		{"80", "203.0.113.9", true},
		{"80", "192.0.2.9", false},
		{"30080", "172.16.0.1", true},
	} {
		f := allTraffic(t)
		q := Question{}
		if c.from == "" {
			q.To = target(t, c.to)
		} else {
			var err error
			q.To, err = ParsePort(c.to)
			fatal.If(t, err)
			q.From = &Source{Text: c.from, Addrs: policytest.Addrs(c.from)}
		}
		e := Explain(q, f)
		if want := map[bool]Verdict{true: Denied, false: Allowed}[c.denied]; e.Verdict != want || strings.Contains(e.Reason, "denies it on the node; of policies for pods: no policy ") != c.denied {
			t.Errorf("%+v: %s: %s", c, e.Verdict, e.Reason)
		}
		if f.SeesCluster = nil; c.denied && !strings.HasPrefix(Explain(q, f).Reason, "a policy for nodes denies it on the node") {
			t.Errorf("%+v: %s", c, Explain(q, f).Reason)
		}
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
