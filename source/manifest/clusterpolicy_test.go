package manifest

import (
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
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
		p := cfqdnnp.Read(objects[0].clusterPolicy)
		if len(p.Problems) > 0 {
			t.Error(p.Problems)
		}
		read = append(read, p)
	}
	whole, short := read[0], read[1]
	if whole.Audit != short.Audit || whole.Denied != short.Denied || whole.DNSDenied != short.DNSDenied || whole.Unmatched != short.Unmatched || whole.Rules[0].TTL != short.Rules[0].TTL {
		t.Errorf("the defaults are %+v", short)
	}
}

// TestClusterPoliciesOfFolder: they have no namespace, in lists too, the first of two of one
// name counts, and an unchanged one keeps its pointer.
func TestClusterPoliciesOfFolder(t *testing.T) {
	const spec = "spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n"
	const head = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\n"
	objects, err := decode(t, "", "p.yaml", head+"metadata: {name: p, namespace: shop}\n"+spec+
		"---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicyList\nitems:\n- "+strings.ReplaceAll(head+"metadata: {name: q}\n"+spec, "\n", "\n  "))
	fatal.If(t, err)
	if len(objects) != 2 || objects[0].key != "clusterpolicy p" || objects[0].clusterPolicy.Namespace != "" || objects[1].key != "clusterpolicy q" {
		t.Errorf("%+v", objects)
	}
	again, err := decode(t, "", "p.yaml", head+"metadata: {name: p}\n"+spec)
	fatal.If(t, err)
	was := objects[0].clusterPolicy
	if keepPointers(objects, again); again[0].clusterPolicy != was {
		t.Error("an unchanged policy has another pointer")
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
