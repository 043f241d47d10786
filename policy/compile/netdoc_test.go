package compile

import (
	"os"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/fatal"
)

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
