package manifest

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestClusterPolicyDocument: the example of the document is valid, and what it leaves out has
// the values that it names as defaults.
func TestClusterPolicyDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/clusterpolicies.md")
	fatal.If(t, err)
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	head, defaults, _ := strings.Cut(example, "  dns:\n")
	if defaults == "" {
		t.Fatal("no example")
	}
	var read []*cfqdnnp.Policy
	for _, manifest := range []string{example, head} {
		objects, err := decode(t, "", "p.yaml", manifest)
		fatal.If(t, err)
		p := cfqdnnp.Read(objects[0].ClusterPolicy)
		diff.Empty(t, p.Problems)
		read = append(read, p)
	}
	whole, short := read[0], read[1]
	if whole.Audit != short.Audit || whole.Denied != short.Denied || whole.DNSDenied != short.DNSDenied || whole.Unmatched != short.Unmatched || whole.Rules[0].TTL != short.Rules[0].TTL {
		t.Errorf("the defaults are %+v", short)
	}
}

// TestClusterPoliciesOfFolder: they have no namespace, in lists too, and the first of two of one
// name counts.
func TestClusterPoliciesOfFolder(t *testing.T) {
	const spec = "spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n"
	const head = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\n"
	objects, err := decode(t, "", "p.yaml", head+"metadata: {name: p, namespace: shop}\n"+spec+
		"---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicyList\nitems:\n- "+strings.ReplaceAll(head+"metadata: {name: q}\n"+spec, "\n", "\n  "))
	fatal.If(t, err)
	if len(objects) != 2 || objects[0].key != "clusterpolicy p" || objects[0].ClusterPolicy.Namespace != "" || objects[1].key != "clusterpolicy q" {
		t.Errorf("%+v", objects)
	}
	for text, want := range map[string]string{
		head + "metadata: {}\n" + spec:                                              "metadata.name is missing; write one",
		head + "metadata: {name: P}\n" + spec:                                       `metadata.name "P"`,
		head + "metadata: {name: p}\nspec: {x: 1}":                                  `unknown field "spec.x"`,
		strings.ReplaceAll(head, "v1alpha1", "v1") + "metadata: {name: p}\n" + spec: "apiVersion namegate.io/v1 is unknown for ClusterFQDNNetworkPolicy; write namegate.io/v1alpha1",
	} {
		if _, err := decode(t, "", "p.yaml", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestClusterNetworkPoliciesOfFolder: those of the standard, as written, and nodes as their
// peers.
func TestClusterNetworkPoliciesOfFolder(t *testing.T) {
	const head = "apiVersion: policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\n"
	const spec = "spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}], later: 1}]}\n"
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {rack: a}}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: n1}]}\n"
	text := head + "metadata: {name: p, namespace: shop}\n" + spec + "---\n" + node +
		"---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicyList\nitems:\n- " + strings.ReplaceAll(strings.Replace(head, "v1beta1", "v1alpha2", 1)+"metadata: {name: q}\n"+spec, "\n", "\n  ")
	objects, err := decode(t, "", "p.yaml", text)
	fatal.If(t, err)
	f := folder{files: map[string]*file{"p.yaml": {objects: objects}}}
	in := f.state().Input
	if len(in.ClusterNetworkPolicies) != 2 || in.ClusterNetworkPolicies[0].GetNamespace() != "" || in.ClusterNetworkPolicies[1].GetName() != "q" {
		t.Fatalf("%+v", in.ClusterNetworkPolicies)
	}
	if p := cnp.Read(in.ClusterNetworkPolicies[0]); len(p.Rules) != 1 || !p.Rules[0].Broken || p.Priority != 1 {
		t.Errorf("%+v", p.Problems)
	}
	diff.Error(t, []*policy.Pod{peers.Node("n1", map[string]string{"rack": "a"}, []netip.Addr{netip.MustParseAddr("192.0.2.1")})}, in.Nodes)
	for text, want := range map[string]string{
		head + "metadata: {}\n" + spec:                                            "metadata.name is missing; write one",
		head + "metadata: {name: P}\n":                                            `metadata.name "P"`,
		strings.Replace(head, "v1beta1", "v1alpha1", 1) + "metadata: {name: p}\n": "apiVersion policy.networking.k8s.io/v1alpha1 is unknown for ClusterNetworkPolicy; write policy.networking.k8s.io/v1beta1",
	} {
		if _, err := decode(t, "", "p.yaml", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestClusterNetworkPolicyDocument: the example of the document is the one of the examples,
// and valid.
func TestClusterNetworkPolicyDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/clusternetworkpolicy.md")
	fatal.If(t, err)
	_, documented, _ := strings.Cut(string(text), "```yaml\n")
	documented, _, _ = strings.Cut(documented, "```")
	example, err := os.ReadFile("../../examples/clusternetworkpolicy.yaml")
	fatal.If(t, err)
	diff.Error(t, documented, string(example))
	objects, err := decode(t, "", "p.yaml", string(example))
	fatal.If(t, err)
	p := cnp.Read(objects[0].ClusterNetworkPolicy)
	if all, _, message := cnp.Enforced(p.Problems); !all || len(p.Rules) != 5 || !p.Selects(map[string]string{"team": "shop"}, nil) {
		t.Errorf("%s, %d rules", message, len(p.Rules))
	}
}

// TestNodesDocument: the policy for nodes of the document is the one of the examples, and valid.
func TestNodesDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/nodes.md")
	fatal.If(t, err)
	example, err := os.ReadFile("../../examples/nodes.yaml")
	fatal.If(t, err)
	diff.Has(t, "```yaml\n"+string(example)+"```\n", string(text), "docs/nodes.md does not have examples/nodes.yaml")
	objects, err := decode(t, "", "p.yaml", string(example))
	fatal.If(t, err)
	p := nnp.Read(objects[0].NodePolicy)
	if len(p.Problems) > 0 || len(p.Rules) != 4 || !p.Nodes.Matches(map[string]string{"kubernetes.io/os": "linux"}) {
		t.Errorf("%v, %d rules", p.Problems, len(p.Rules))
	}
}
