package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// ingressInput has three pods of shop, of which no policy of ours selects any.
func ingressInput(all bool, nets ...*networkingv1.NetworkPolicy) Input {
	in := besideInput(shopCluster(), nets...)
	in.Policies, in.EnforceNetworkPolicies = nil, all
	in.Pods = []policy.Pod{aPod("a", "web", "10.0.0.1"), aPod("b", "web", "10.0.0.2"), aPod("c", "db", "10.0.0.3")}
	return in
}

// ingressTexts returns what isolates a view's pod for ingress, and its rules.
func ingressTexts(v *policy.View) (out []string) {
	if v == nil || v.Ingress == nil {
		return nil
	}
	out = append(out, "isolated by "+strings.Join(v.Ingress.NetworkPolicies, " "))
	for r := range v.Ingress.All() {
		out = append(out, orderedText(r))
	}
	return out
}

func viewOf(s *policy.Snapshot, name string) *policy.View {
	i := slices.IndexFunc(s.Views, func(v *policy.View) bool { return v.Pod.Name == name })
	if i < 0 {
		return nil
	}
	return s.Views[i]
}

// TestAllOrSelected: NetworkPolicies isolate alone with EnforceNetworkPolicies. Else their rules for
// ingress count where a ClusterNetworkPolicy has some, those for egress where a policy has some.
func TestAllOrSelected(t *testing.T) {
	const head = "tier: Admin, priority: 5, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, "
	both := aNet(t, "both", `{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}]}]}`)
	in, out := aStandard(t, "in", "{"+head+"ingress: [{action: Deny, from: [{namespaces: {}}]}]}"), aStandard(t, "out", "{"+head+"egress: [{action: Deny, to: [{nodes: {}}]}]}")
	isolates := []string{"isolated by shop/both", "Namespace shop/both spec.ingress[0] Accept 1 shop: * any"}
	for _, c := range []struct {
		what            string
		all             bool
		cluster         []*unstructured.Unstructured
		web, db         []string // for ingress
		webOut, dbOut   int      // NetworkPolicies for egress
		sets            int
		webKept, dbKept bool // there is a view
	}{
		{what: "no other policy"},
		{what: "for egress", cluster: []*unstructured.Unstructured{out}, webOut: 1, webKept: true, sets: 2},
		{what: "for ingress", cluster: []*unstructured.Unstructured{in}, webKept: true, sets: 2,
			web: append([]string{isolates[0], "Admin clusternetworkpolicy:in spec.ingress[0] Deny 1 *: * any"}, isolates[1])},
		{what: "all", all: true, web: isolates, db: isolates, webOut: 1, dbOut: 1, webKept: true, dbKept: true, sets: 2},
		{what: "all beside", all: true, cluster: []*unstructured.Unstructured{in, out}, db: isolates, webOut: 1, dbOut: 1, webKept: true, dbKept: true, sets: 4,
			web: append([]string{isolates[0], "Admin clusternetworkpolicy:in spec.ingress[0] Deny 1 *: * any"}, isolates[1])},
	} {
		input := ingressInput(c.all, both)
		input.ClusterNetworkPolicies = c.cluster
		s := New().Compile(input)
		web, db := viewOf(s, "a"), viewOf(s, "c")
		if (web != nil) != c.webKept || (db != nil) != c.dbKept {
			t.Errorf("%s: views %v %v", c.what, web, db)
			continue
		}
		diff.Error(t, [2][]string{c.web, c.db}, [2][]string{ingressTexts(web), ingressTexts(db)}, c.what)
		diff.Equal(t, c.sets, len(s.PeerSets), c.what, "sets", setTexts(s))
		for v, want := range map[*policy.View]int{web: c.webOut, db: c.dbOut} {
			if v != nil && (len(v.NetworkPolicies) != want || v.Standalone != c.all) {
				t.Errorf("%s: %v has %v for egress, standalone %v", c.what, v.Pod, v.NetworkPolicies, v.Standalone)
			}
		}
	}
}

// TestIngressIsShared: views with the same rules have one Ingress, from one compile to the next.
func TestIngressIsShared(t *testing.T) {
	in := ingressInput(true, aNet(t, "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: 22}]}]}`), aNet(t, "db", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`))
	in.Pods[0].Ports = []policy.NamedPort{{Name: "other", Protocol: policy.TCP, Port: 1}, {Name: "http", Protocol: policy.TCP, Port: 80}, {Name: "http", Protocol: policy.UDP, Port: 81}}
	in.Pods[1].Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}
	in.Pods = append(in.Pods, aPod("d", "web", "10.0.0.4"))
	in.Pods[3].Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 8080}}
	c := New()
	s := c.Compile(in)
	a, b, d, db := viewOf(s, "a"), viewOf(s, "b"), viewOf(s, "d"), viewOf(s, "c")
	if a.Ingress != b.Ingress || a.Ingress == d.Ingress || a.Ingress == db.Ingress {
		t.Error("pods with the same rules and named ports share nothing, or others do")
	}
	diff.Error(t, []string{"isolated by shop/web", "Namespace shop/web spec.ingress[0] Accept 0  tcp/22,tcp/80"}, ingressTexts(a))
	diff.Error(t, []string{"isolated by shop/web", "Namespace shop/web spec.ingress[0] Accept 0  tcp/22,tcp/8080"}, ingressTexts(d))
	in.Pods = slices.Clone(in.Pods)
	in.Pods[2].Labels = map[string]string{"app": "web"}
	in.Pods[3].Ports = nil
	s = c.Compile(in)
	if viewOf(s, "a") != a || viewOf(s, "b") != b || viewOf(s, "c").Ingress == db.Ingress || viewOf(s, "d").Ingress == d.Ingress || viewOf(s, "c").Ingress != viewOf(s, "d").Ingress {
		t.Error("unchanged pods have another view, or changed ones the last")
	}
	diff.Error(t, []string{"isolated by shop/web", "Namespace shop/web spec.ingress[0] Accept 0  tcp/22"}, ingressTexts(viewOf(s, "d")))
	diff.Equal(t, 2, len(c.ingresses), "kept")
	in.NetworkPolicies = slices.Clone(in.NetworkPolicies)
	for i, n := range in.NetworkPolicies { // egress alone
		in.NetworkPolicies[i] = n.DeepCopy()
		in.NetworkPolicies[i].Spec.PolicyTypes = []networkingv1.PolicyType{"Egress", "Ingress"}
		in.NetworkPolicies[i].Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	}
	s = c.Compile(in)
	last := viewOf(s, "a")
	in.NetworkPolicies = slices.Clone(in.NetworkPolicies)
	for i, n := range in.NetworkPolicies {
		in.NetworkPolicies[i] = n.DeepCopy()
		in.NetworkPolicies[i].Spec.Egress = nil
	}
	if s = c.Compile(in); viewOf(s, "a") == last || viewOf(s, "a").Ingress != last.Ingress {
		t.Error("a change of egress alone is not seen, or is one of ingress")
	}
	in.EnforceNetworkPolicies = false
	if s = c.Compile(in); len(s.Views)+len(s.PeerSets)+len(c.ingresses)+len(c.ingress.known)+len(c.ingress.unions) > 0 {
		t.Errorf("%v is kept where nothing is enforced", s.Views)
	}
}

// TestIngressOfGroups: cluster policies without rules for ingress make no other one.
func TestIngressOfGroups(t *testing.T) {
	in := ingressInput(false)
	const rest = "tier: Baseline, priority: 5, "
	in.ClusterNetworkPolicies = []*unstructured.Unstructured{
		aStandard(t, "all", "{"+rest+"subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}, {action: Accept, from: [{}]}]}"),
		aStandard(t, "web", "{"+rest+"subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, egress: [{action: Deny, to: [{nodes: {}}]}]}"),
	}
	for i := range in.Pods {
		in.Pods[i].Ports = []policy.NamedPort{{Name: "http", Protocol: policy.SCTP, Port: 80}}
	}
	s := New().Compile(in)
	web, db := viewOf(s, "a"), viewOf(s, "c")
	diff.Error(t, []string{"isolated by ", "Baseline clusternetworkpolicy:all spec.ingress[0] Deny 1 *: * sctp/80", "Baseline clusternetworkpolicy:all spec.ingress[1] Accept broken "}, ingressTexts(web))
	if web.Ingress != db.Ingress || len(web.Rules.Baseline) != 1 || len(db.Rules.Baseline) != 0 || db.InForce() {
		t.Errorf("%v %v", web, db)
	}
}

// TestIngressConflict: an address that two pods claim is closed in the directions in which one of them is
// judged.
func TestIngressConflict(t *testing.T) {
	const cluster = "{tier: Baseline, priority: 5, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}]}"
	for what, test := range map[string]struct {
		all               bool
		nets              []*networkingv1.NetworkPolicy
		standard          string
		ingress           []string
		inbound, outbound bool // closed
	}{
		"ingress":    {all: true, nets: []*networkingv1.NetworkPolicy{aNet(t, "n", "{ingress: [{}]}"), aNet(t, "m", "{podSelector: {matchLabels: {app: web}}}")}, ingress: []string{"isolated by shop/m shop/n"}, inbound: true},
		"egress":     {all: true, nets: []*networkingv1.NetworkPolicy{aNet(t, "n", "{policyTypes: [Egress], egress: [{}]}")}, outbound: true},
		"a standard": {standard: cluster, ingress: []string{"isolated by ", "Admin clusternetworkpolicy:p spec.ingress[0] Deny 0  any"}, inbound: true},
		"both":       {all: true, standard: cluster, nets: []*networkingv1.NetworkPolicy{aNet(t, "n", "{egress: [{}]}")}, ingress: []string{"isolated by shop/n"}, inbound: true, outbound: true},
	} {
		in := ingressInput(test.all, test.nets...)
		in.Pods[1].IPs, in.Pods[1].Ports = in.Pods[0].IPs, []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}
		if test.standard != "" {
			in.ClusterNetworkPolicies = []*unstructured.Unstructured{aStandard(t, "p", test.standard)}
		}
		c := New()
		s := c.Compile(in)
		v := s.View(addr("10.0.0.1"))
		if v == nil || !strings.Contains(v.Pod.UID, "+") {
			t.Errorf("%s: %v", what, v)
			continue
		}
		diff.Error(t, test.ingress, ingressTexts(v), what)
		f := policy.Flow{Protocol: policy.TCP, Source: addr("10.1.0.1"), Dialled: netip.MustParseAddrPort("10.1.0.1:80"), Reached: netip.MustParseAddrPort("10.1.0.1:80")}
		if allowed, _ := policy.Evaluate(v, s, &f); allowed == test.outbound {
			t.Errorf("%s: egress is open: %v", what, allowed)
		}
		f.Reached = netip.MustParseAddrPort("10.0.0.1:80")
		if allowed, _ := policy.EvaluateIngress(v, s, &f); allowed == test.inbound {
			t.Errorf("%s: ingress is open: %v", what, allowed)
		}
		if again := c.Compile(in); again.View(addr("10.0.0.1")) != v {
			t.Errorf("%s: another view without a change", what)
		}
		if v.Standalone != test.all {
			t.Errorf("%s: standalone %v", what, v.Standalone)
		}
	}
}

// inboundFrom is rules for one address each, from a number on, on one port.
func inboundFrom(n *networkingv1.NetworkPolicy, first, rules int) *networkingv1.NetworkPolicy {
	for _, rule := range blockRules(&networkingv1.NetworkPolicy{}, first, rules, 80).Spec.Egress {
		n.Spec.Ingress = append(n.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: rule.To, Ports: rule.Ports})
	}
	return n
}

// TestIngressIsBounded: each direction of a pod has room of its own, and what has none is said once. A name
// costs as much as ports.
func TestIngressIsBounded(t *testing.T) {
	both := inboundFrom(blockRules(aNet(t, "a", "policyTypes: [Ingress, Egress]"), 0, 2000, 80), 0, MaxViewPeers-1)
	names := aNet(t, "b", "ingress: [{ports: [{port: http}, {port: https}]}, {ports: [{port: http}]}, {ports: [{port: https}]}]")
	in := ingressInput(true, both, names)
	c := New()
	c.room = cost{sets: 2 * MaxViewPeers, rules: 4 * MaxViewPeers, entries: 1 << 20}
	s := c.Compile(in)
	want := "networkpolicy shop/b PartiallyInvalid spec.ingress[0]: this rule and 1 more of the NetworkPolicy open not all that they say for pod shop/a: the NetworkPolicies that select it have more than 4096"
	if got := problemTexts(s); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%v", got)
	}
	if v := viewOf(s, "a"); len(v.Rules.Namespace) != 2000 || len(v.Ingress.Namespace) != MaxViewPeers-1 || len(v.Ingress.NetworkPolicies) != 2 {
		t.Errorf("%d rules for egress, %d for ingress", len(v.Rules.Namespace), len(v.Ingress.Namespace))
	}
	if r := c.ingress.unions; len(r) != 1 {
		t.Errorf("%d unions", len(r))
	}
}

// TestIngressHasItsPart: the quota of a node is for both directions. Of a namespace that has too much, the rules for
// egress have room first, and another namespace loses nothing.
func TestIngressHasItsPart(t *testing.T) {
	greedy := inboundFrom(blockRules(aNet(t, "greedy", "policyTypes: [Ingress, Egress]"), 0, 10, 80), 100, 30)
	modest := inboundFrom(blockRules(aNet(t, "bank/modest", "policyTypes: [Ingress, Egress]"), 200, 4, 80), 300, 4)
	in := ingressInput(true, greedy, modest)
	in.Pods[2].Namespace = "bank"
	for what, room := range map[string]cost{"sets": {sets: 30, rules: 1000, entries: 1000}, "rules": {sets: 1000, rules: 30, entries: 1000}, "entries": {sets: 1000, rules: 1000, entries: 30}} {
		c := New()
		c.room = room
		s := c.Compile(in)
		a, b := viewOf(s, "a"), viewOf(s, "c")
		if len(a.Rules.Namespace) != 10 || len(a.Ingress.Namespace) != 12 || len(b.Rules.Namespace) != 4 || len(b.Ingress.Namespace) != 4 || len(s.PeerSets) != 30 {
			t.Errorf("%s: %d and %d rules, %d and %d, %d sets", what, len(a.Rules.Namespace), len(a.Ingress.Namespace), len(b.Rules.Namespace), len(b.Ingress.Namespace), len(s.PeerSets))
		}
		if got := problemTexts(s); len(got) != 1 || !strings.HasPrefix(got[0], "networkpolicy shop/greedy PartiallyInvalid spec.ingress[12]: this rule and 17 more") {
			t.Errorf("%s: %v", what, got)
		}
		if again := c.Compile(in); viewOf(again, "a") != a {
			t.Errorf("%s: another view without a change", what)
		}
	}
}

// TestClusterIngressRoom: rules for ingress count for the bounds of cluster policies, those for egress first.
func TestClusterIngressRoom(t *testing.T) {
	in := ingressInput(false)
	in.ClusterNetworkPolicies = []*unstructured.Unstructured{aStandard(t, "p", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{networks: [192.0.2.0/24]}]}],
		ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}]}`)}
	deny := "Admin clusternetworkpolicy:p spec.ingress[1] Deny 1 *: app=db any"
	closed := "Admin clusternetworkpolicy:p spec.ingress[1] Deny broken 0  any"
	for what, c := range map[string]struct {
		rules, sets, entries int
		want                 string
	}{"all": {3, 3, 1000, deny}, "rules": {2, 3, 1000, closed}, "sets": {3, 2, 1000, closed}, "entries": {3, 3, 12, closed}} {
		compiler := New()
		compiler.cluster.room.rules, compiler.cluster.room.sets, compiler.cluster.entries = c.rules, c.sets, c.entries
		s := compiler.Compile(in)
		v := viewOf(s, "a")
		diff.Error(t, []string{"isolated by ", "Admin clusternetworkpolicy:p spec.ingress[0] Accept 1 *: * any", c.want}, ingressTexts(v), what)
		if len(v.Rules.Admin) != 1 || v.Rules.Admin[0].Broken || (len(s.Problems) > 0) != (c.want == closed) {
			t.Errorf("%s: %v %v", what, v.Rules.Admin, problemTexts(s))
		}
		if v.Ingress != viewOf(s, "c").Ingress {
			t.Errorf("%s: not shared", what)
		}
	}
	in.PeersUnknown = true
	v := viewOf(New().Compile(in), "a")
	diff.Error(t, []string{"isolated by ", "Admin clusternetworkpolicy:p spec.ingress[0] Accept 1 *: * any", closed}, ingressTexts(v), "peers are not known")
}

// TestDeferKeepsIngress: a pod whose egress waits for names is judged for ingress at once, and unknown if it was: the
// agent gets its queries. A later Defer is the same.
func TestDeferKeepsIngress(t *testing.T) {
	np := aNet(t, "np", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}")
	own := []*v1alpha1.FQDNNetworkPolicy{aPolicy("own", "", aRule("www.example.org"))}
	web := policy.PodRef{Namespace: "shop", Name: "a", UID: aPod("a", "", "10.0.0.1").UID}
	waiting := map[policy.PodRef]bool{web: true}
	for what, before := range map[string]func(*Input){
		"a pod that comes":        func(in *Input) { in.Pods = in.Pods[1:] },
		"a pod that was there":    func(in *Input) { in.NetworkPolicies = nil },
		"a pod with other rules":  func(in *Input) { in.NetworkPolicies = []*networkingv1.NetworkPolicy{aNet(t, "np", "ingress: []")} },
		"a pod with the same":     func(*Input) {},
		"a pod of all namespaces": func(in *Input) { in.EnforceNetworkPolicies = false },
	} {
		c, in := New(), ingressInput(true, np)
		before(&in)
		last := c.Compile(in)
		in = ingressInput(true, np)
		in.Policies = own
		now := c.Compile(in)
		got := now.Defer(last, waiting)
		v := got.View(addr("10.0.0.1"))
		if v == nil || v.Pod.PodRef != web || v.InForce() || v.Ingress != now.ViewOf(web).Ingress || got == now || !now.Isolates(web) {
			t.Errorf("%s: %v", what, v)
			continue
		}
		owner, known := got.Pod(addr("10.0.0.1"))
		listed := slices.ContainsFunc(got.Pods(), func(p policy.Pod) bool { return p.PodRef == web })
		if was := what != "a pod that comes"; known != was || listed != was || known && owner != web {
			t.Errorf("%s: the pod is known %v, listed %v", what, known, listed)
		}
		if again := now.Defer(got, waiting); again.ViewOf(web) != v || !again.SameButPeers(got) {
			t.Errorf("%s: another view the second time", what)
		}
		in.NetworkPolicies = nil
		if gone := c.Compile(in).Defer(got, waiting); gone.ViewOf(web) != nil && gone.ViewOf(web).Ingress != nil || gone.Isolates(web) {
			t.Errorf("%s: %v without the NetworkPolicy", what, gone.ViewOf(web))
		}
	}
}
