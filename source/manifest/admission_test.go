package manifest

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestSameAsAdmission: a manifest in a file is refused, or reported by Validate,
// exactly if an API server with our schema refuses it.
func TestSameAsAdmission(t *testing.T) {
	var docs []string
	for _, file := range []string{"admission.yaml", "admission-cluster.yaml", "admission-node.yaml"} {
		text, err := os.ReadFile("../../crds/testdata/" + file)
		fatal.If(t, err)
		docs = append(docs, strings.Split(string(text), "---\n")[1:]...)
	}
	if len(docs) < 50 {
		t.Fatalf("%d cases", len(docs))
	}
	for _, doc := range docs {
		var c struct {
			Name, Manifest string
			Refused        []string
		}
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &c))
		t.Run(c.Name, func(t *testing.T) {
			objects, err := decode(t, "", "p.yaml", c.Manifest)
			if err != nil {
				if len(c.Refused) == 0 {
					t.Error(err)
				}
				return
			}
			var problems []policy.Problem
			switch o := objects[0]; {
			case o.ClusterPolicy != nil:
				problems = cfqdnnp.Validate(o.ClusterPolicy)
			case o.NodePolicy != nil:
				problems = nnp.Validate(o.NodePolicy)
			default:
				problems = fqdnnp.Validate(o.Policy)
			}
			diff.Equal(t, len(c.Refused) > 0, len(problems) > 0, "problems", problems, "the API server says", c.Refused)
		})
	}
}
