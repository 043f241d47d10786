package compile

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
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
	diff.Error(t, []string{"1 shop: app=db | tcp/5432 | shop/a spec.egress[1]", "1 shop: app=db | tcp/5432 | shop/b spec.egress[0]", "2 10.1.0.3/32 | any | shop/a spec.egress[0]"},
		ruleTexts(s.Views[1]))
	diff.Error(t, []string{"shop/a", "shop/b", "shop/z"}, s.Views[1].NetworkPolicies)
	diff.Error(t, []string{"1 shop: app=db = 10.1.0.1 10.1.0.2 2001:db8::1", "2 10.1.0.3/32 = 10.1.0.3/32"}, setTexts(s))
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
	diff.Error(t, []string{"1 shop: * = 10.0.0.1 10.0.0.4 10.1.0.1 10.1.0.8 10.1.0.9 2001:db8::1"}, setTexts(s))
	for _, v := range s.Views { // two and three claim one address: closed
		if v.Pod.Name != "web" && len(v.PeerRules())+len(v.NetworkPolicies) > 0 {
			t.Errorf("%s may reach %v", v.Pod, ruleTexts(v))
		}
	}
}

// TestExamplesBesideNetworkPolicy: the manifests in the document are valid, and apply
// completely.
func TestExamplesBesideNetworkPolicy(t *testing.T) {
	text, err := os.ReadFile("../../docs/networkpolicy.md")
	fatal.If(t, err)
	examples := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for document := range strings.SplitSeq(block, "\n---\n") {
			examples++
			if strings.Contains(document, "kind: FQDNNetworkPolicy") {
				p := v1alpha1.FQDNNetworkPolicy{}
				if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil || fqdnnp.Validate(&p) != nil {
					t.Errorf("%s\n%v, %v", document, err, fqdnnp.Validate(&p))
				}
				continue
			}
			n := &networkingv1.NetworkPolicy{}
			if err := yaml.UnmarshalStrict([]byte(document), n); err != nil || n.Kind != "NetworkPolicy" || n.APIVersion != "networking.k8s.io/v1" {
				t.Errorf("%s\n%v", document, err)
				continue
			}
			if netpol.Ignored(n) {
				continue
			}
			in := besideInput(shopCluster(), n)
			in.Pods[0].Labels, in.Pods[0].Namespace, in.Policies[0].Namespace = n.Spec.PodSelector.MatchLabels, n.Namespace, n.Namespace
			if s := New().Compile(in); len(s.Problems) > 0 || !slices.Equal(s.Views[0].NetworkPolicies, []string{n.Namespace + "/" + n.Name}) {
				t.Errorf("%s\ncounts as %v, problems %v", document, s.Views[0].NetworkPolicies, problemTexts(s))
			}
		}
	}
	if examples < 3 {
		t.Errorf("%d examples", examples)
	}
}
