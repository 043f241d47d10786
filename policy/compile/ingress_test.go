package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		if v == nil || v.Pod.UID != "a+b" && !strings.Contains(v.Pod.Name, "+") {
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
		if fmt.Sprint(v.Standalone) != fmt.Sprint(test.all) {
			t.Errorf("%s: standalone %v", what, v.Standalone)
		}
	}
}
