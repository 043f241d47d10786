package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

// shopCluster has pods of other nodes in three namespaces.
func shopCluster() []*policy.Pod {
	finished := farPod("shop/done", "app=db", "10.1.0.9")
	finished.Phase = "Succeeded"
	onNode := farPod("shop/node", "app=db", "192.0.2.1")
	onNode.HostNetwork = true
	return []*policy.Pod{
		withPort(farPod("shop/db-0", "app=db", "10.1.0.1", "2001:db8::1"), "sql", policy.TCP, 5432),
		withPort(farPod("shop/db-1", "app=db,old=", "10.1.0.2"), "sql", policy.TCP, 6432),
		withPort(withPort(farPod("bank/api", "app=api", "10.1.0.3"), "sql", policy.UDP, 1), "web", policy.TCP, 8080),
		withPort(farPod("lone/db", "app=db", "10.1.0.4"), "sql", policy.TCP, 7777),
		finished, onNode,
	}
}

// TestClauses has each clause of a rule: the open destinations among the tried ones, and
// the rule in the view.
func TestClauses(t *testing.T) {
	const db0, db1, api, lone, self, out = "10.1.0.1 tcp 5432", "10.1.0.2 tcp 5432", "10.1.0.3 tcp 8080", "10.1.0.4 tcp 5432", "10.0.0.1 tcp 80", "198.51.100.7 tcp 443"
	for name, test := range map[string]struct {
		spec  string
		asked []string
		open  []string
		rules []string
	}{
		"no rules":      {spec: `policyTypes: [Egress]`, asked: []string{db0, out}},
		"ingress alone": {spec: `{policyTypes: [Ingress], egress: [{}]}`, asked: []string{db0, out}},
		"types left out": {spec: `egress: [{}]`, asked: []string{db0, out}, open: []string{db0, out},
			rules: []string{"0  | any | shop/np spec.egress[0]"}},
		"everything, ICMP too": {spec: `{policyTypes: [Ingress, Egress], egress: [{}]}`, asked: []string{"198.51.100.7 icmp 0", "2001:db8::9 udp 53", "169.254.169.254 tcp 80"},
			open: []string{"198.51.100.7 icmp 0", "2001:db8::9 udp 53", "169.254.169.254 tcp 80"}, rules: []string{"0  | any | shop/np spec.egress[0]"}},
		"empty to": {spec: `{egress: [{to: [], ports: []}]}`, asked: []string{out}, open: []string{out}, rules: []string{"0  | any | shop/np spec.egress[0]"}},
		"ports everywhere": {spec: `egress: [{ports: [{port: 443}, {protocol: UDP}, {protocol: SCTP, port: 10, endPort: 12}]}]`,
			asked: []string{out, "198.51.100.7 udp 443", "198.51.100.7 udp 1", "198.51.100.7 sctp 11", "198.51.100.7 sctp 13", "198.51.100.7 tcp 80", "198.51.100.7 icmp 0"},
			open:  []string{out, "198.51.100.7 udp 443", "198.51.100.7 udp 1", "198.51.100.7 sctp 11"},
			rules: []string{"0  | tcp/443,udp,sctp/10-12 | shop/np spec.egress[0]"}},
		"every port of TCP": {spec: `egress: [{ports: [{}]}]`, asked: []string{out, "198.51.100.7 udp 443"}, open: []string{out},
			rules: []string{"0  | tcp | shop/np spec.egress[0]"}},
		"pods": {spec: `egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]`,
			asked: []string{db0, "2001:db8::1 icmp 0", db1, api, lone, out, "10.1.0.9 tcp 5432", "192.0.2.1 tcp 5432"},
			open:  []string{db0, "2001:db8::1 icmp 0", db1}, rules: []string{"1 shop: app=db | any | shop/np spec.egress[0]"}},
		"every pod of the namespace, its own too": {spec: `egress: [{to: [{podSelector: {}}]}]`, asked: []string{db0, db1, api, self}, open: []string{db0, db1, self},
			rules: []string{"1 shop: * | any | shop/np spec.egress[0]"}},
		"namespaces": {spec: `egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}]}]`, asked: []string{db0, api, lone}, open: []string{api},
			rules: []string{"1 ns team=b: * | any | shop/np spec.egress[0]"}},
		"every namespace": {spec: `egress: [{to: [{namespaceSelector: {}}]}]`, asked: []string{db0, api, lone, out}, open: []string{db0, api, lone},
			rules: []string{"1 *: * | any | shop/np spec.egress[0]"}},
		"pods of namespaces": {spec: `egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}]}]`, asked: []string{db0, api, lone}, open: []string{db0, lone},
			rules: []string{"1 *: app=db | any | shop/np spec.egress[0]"}},
		"two entries are either": {spec: `egress: [{to: [{podSelector: {matchLabels: {old: ""}}}, {namespaceSelector: {matchLabels: {team: b}}}]}]`,
			asked: []string{db0, db1, api, lone}, open: []string{db1, api}, rules: []string{"1 ns team=b: *; shop: old= | any | shop/np spec.egress[0]"}},
		"expressions": {spec: `egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [b, a]}]},
			podSelector: {matchExpressions: [{key: app, operator: In, values: [x, db]}, {key: old, operator: DoesNotExist}]}}]}]`,
			asked: []string{db0, api, lone}, open: []string{lone}, rules: []string{"1 ns team notin (a,b): !old,app in (db,x) | any | shop/np spec.egress[0]"}},
		"no label": {spec: `egress: [{to: [{podSelector: {matchExpressions: [{key: old, operator: Exists}]}}]}]`, asked: []string{db0, db1}, open: []string{db1},
			rules: []string{"1 shop: old | any | shop/np spec.egress[0]"}},
		"block": {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.9/24, except: [198.51.100.0/25, 198.51.100.200/32]}}], ports: [{port: 443}]}]`,
			asked: []string{out, "198.51.100.129 tcp 443", "198.51.100.129 tcp 80", "198.51.100.200 tcp 443", "198.51.100.255 tcp 443"},
			open:  []string{"198.51.100.129 tcp 443", "198.51.100.255 tcp 443"},
			rules: []string{"2 198.51.100.128/26,198.51.100.192/29,198.51.100.201/32,198.51.100.202/31,198.51.100.204/30,198.51.100.208/28,198.51.100.224/27 | tcp/443 | shop/np spec.egress[0]"}},
		"an exception is its block's alone": {spec: `egress: [{to: [{ipBlock: {cidr: 10.1.0.0/16, except: [10.1.0.0/24]}}, {ipBlock: {cidr: 10.1.0.2/32}}]}]`,
			asked: []string{db0, db1, "10.1.1.1 tcp 1"}, open: []string{db1, "10.1.1.1 tcp 1"},
			rules: []string{"2 10.1.0.2/32,10.1.1.0/24,10.1.2.0/23,10.1.4.0/22,10.1.8.0/21,10.1.16.0/20,10.1.32.0/19,10.1.64.0/18,10.1.128.0/17 | any | shop/np spec.egress[0]"}},
		"other family": {spec: `egress: [{to: [{ipBlock: {cidr: "::/0"}}]}]`, asked: []string{"2001:db8::1 tcp 1", db0}, open: []string{"2001:db8::1 tcp 1"},
			rules: []string{"2 ::/0 | any | shop/np spec.egress[0]"}},
		"pods and block": {spec: `egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}, {podSelector: {}}], ports: [{port: 443}, {port: 5432}]}]`, asked: []string{out, db0, api}, open: []string{out, db0},
			rules: []string{"1 shop: * | tcp/443,tcp/5432 | shop/np spec.egress[0]", "2 198.51.100.0/24 | tcp/443,tcp/5432 | shop/np spec.egress[0]"}},
		"named port": {spec: `egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: sql}]}]`,
			asked: []string{db0, db1, "10.1.0.2 tcp 6432", "10.1.0.1 tcp 6432", "10.1.0.1 udp 5432", lone}, open: []string{db0, "10.1.0.2 tcp 6432"},
			rules: []string{"3 sql/tcp of shop: app=db | any | shop/np spec.egress[0]"}},
		"named port of the other protocol": {spec: `egress: [{to: [{namespaceSelector: {}}], ports: [{port: sql, protocol: UDP}]}]`,
			asked: []string{db0, "10.1.0.3 udp 1", "10.1.0.3 tcp 1"}, open: []string{"10.1.0.3 udp 1"}, rules: []string{"3 sql/udp of *: * | any | shop/np spec.egress[0]"}},
		"named port in a block": {spec: `egress: [{to: [{ipBlock: {cidr: 10.1.0.2/31}}], ports: [{port: sql}, {port: 1, protocol: UDP}]}]`,
			asked: []string{db0, "10.1.0.2 tcp 6432", "10.1.0.3 tcp 8080", "10.1.0.3 udp 1"}, open: []string{"10.1.0.2 tcp 6432", "10.1.0.3 udp 1"},
			rules: []string{"2 10.1.0.2/31 | udp/1 | shop/np spec.egress[0]", "3 sql/tcp of 10.1.0.2/31 | any | shop/np spec.egress[0]"}},
		"named ports anywhere": {spec: `egress: [{ports: [{port: web}, {port: sql}, {port: web}]}]`, asked: []string{db0, api, "10.1.0.4 tcp 7777", "198.51.100.7 tcp 5432"},
			open: []string{db0, api, "10.1.0.4 tcp 7777"}, rules: []string{"3 sql/tcp,web/tcp of anywhere | any | shop/np spec.egress[0]"}},
		"another pod's": {spec: `{podSelector: {matchLabels: {app: other}}, egress: [{}]}`, asked: []string{out}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New().Compile(besideInput(shopCluster(), aNet(t, "np", test.spec)))
			if len(s.Problems) > 0 {
				t.Errorf("problems %v", problemTexts(s))
			}
			if diff := cmp.Diff(test.rules, ruleTexts(s.Views[0])); diff != "" {
				t.Errorf("rules: %s", diff)
			}
			if diff := cmp.Diff(test.open, append([]string(nil), allows(s, test.asked...)...)); diff != "" {
				t.Errorf("open: %s", diff)
			}
		})
	}
}

// TestUnionOfNetworkPolicies: several are additive and named; those of other pods do not
// count.
func TestUnionOfNetworkPolicies(t *testing.T) {
	db := `egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 5432}]}]`
	in := besideInput(shopCluster(), aNet(t, "z", `policyTypes: [Egress]`), aNet(t, "b", db), aNet(t, "a", `egress: [{to: [{ipBlock: {cidr: 10.1.0.3/32}}]}, `+db[len(`egress: [`):]),
		aNet(t, "bank/c", `egress: [{}]`), aNet(t, "in", `policyTypes: [Ingress]`))
	in.Policies = append(in.Policies, audited(aPolicy("watch", "")))
	in.Policies[1].Namespace = "lone"
	seen := aPod("seen", "x", "10.0.0.8")
	seen.Namespace = "lone"
	in.Pods = append(in.Pods, seen)
	in.NetworkPolicies = append(in.NetworkPolicies, aNet(t, "lone/np", `egress: [{}]`))
	s := New().Compile(in)
	if diff := cmp.Diff([]string{"1 shop: app=db | tcp/5432 | shop/a spec.egress[1]", "1 shop: app=db | tcp/5432 | shop/b spec.egress[0]", "2 10.1.0.3/32 | any | shop/a spec.egress[0]"},
		ruleTexts(s.Views[1])); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"shop/a", "shop/b", "shop/z"}, s.Views[1].NetworkPolicies); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1 shop: app=db = 10.1.0.1 10.1.0.2 2001:db8::1", "2 10.1.0.3/32 = 10.1.0.3/32"}, setTexts(s)); diff != "" {
		t.Error(diff)
	}
	if v := s.Views[0]; v.Enforced || !cmp.Equal(v.NetworkPolicies, []string{"lone/np"}) || len(allows(s, "198.51.100.7 tcp 1")) != 1 {
		t.Errorf("an audited pod's NetworkPolicies are %v", v.NetworkPolicies)
	}
}

// TestLocalPeers are the pods of the node itself, and Pods of other nodes.
func TestLocalPeers(t *testing.T) {
	in := besideInput(nil, aNet(t, "np", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}]}]}`))
	host, done, far := aPod("host", "x", "192.0.2.1"), aPod("done", "x", "10.0.0.3"), aPod("far", "x", "10.1.0.1", "2001:db8::1", "::ffff:10.1.0.9", "127.0.0.1")
	host.HostNetwork, done.Phase, far.NodeName = true, "Failed", "far"
	in.Pods = append(in.Pods, host, done, far, aPod("two", "x", "10.0.0.4"), aPod("three", "x", "10.0.0.4"))
	in.Remote = append(in.Remote, farPod("shop/claims", "", "10.0.0.1", "10.0.0.4", "fe80::1", "::ffff:10.1.0.8"), nil)
	s := New().Compile(in)
	if diff := cmp.Diff([]string{"1 shop: * = 10.0.0.1 10.0.0.4 10.1.0.1 10.1.0.8 10.1.0.9 2001:db8::1"}, setTexts(s)); diff != "" {
		t.Error(diff)
	}
	for _, v := range s.Views { // two and three claim one address: closed
		if v.Pod.Name != "web" && len(v.PeerRules())+len(v.NetworkPolicies) > 0 {
			t.Errorf("%s may reach %v", v.Pod, ruleTexts(v))
		}
	}
}

// TestNamespaceLabels come and go.
func TestNamespaceLabels(t *testing.T) {
	c := New()
	in := besideInput(shopCluster(), aNet(t, "np", `egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a]}]}}]}]`))
	for _, step := range []struct {
		labels map[string]map[string]string
		want   string
	}{
		{spaces(), "10.1.0.3 10.1.0.4"},
		{map[string]map[string]string{"shop": {"team": "b"}, "bank": {"team": "a"}}, "10.0.0.1 10.1.0.1 10.1.0.2 2001:db8::1"},
		{nil, ""}, // unknown peers are not opened
		{map[string]map[string]string{"lone": nil}, "10.1.0.4"},
	} {
		in.Namespaces = step.labels
		if diff := cmp.Diff([]string{"1 ns team!=a: * = " + step.want}, setTexts(c.Compile(in))); diff != "" {
			t.Error(diff)
		}
	}
}
