package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/testkit/fatal"
)

// specs returns the specs of the policies of a text by their names.
func specs(t *testing.T, text string) map[string]v1alpha1.FQDNNetworkPolicySpec {
	t.Helper()
	parts, err := manifest.Inspect("p.yaml", []byte(text))
	fatal.If(t, err)
	out := map[string]v1alpha1.FQDNNetworkPolicySpec{}
	for _, part := range parts {
		fatal.If(t, part.Err)
		for _, o := range part.Objects {
			if o.Policy == nil {
				t.Fatalf("%s %s: %v", o.Kind, o.Name, o.Err)
			}
			for _, rule := range o.Policy.Spec.Egress {
				for _, m := range rule.Matches {
					if m.Pattern != nil {
						*m.Pattern = strings.TrimSuffix(*m.Pattern, ".")
					}
				}
				for i := range rule.Ports { // a port without a protocol is one of each
					if rule.Ports[i].Protocol == nil {
						rule.Ports[i].Protocol = new(v1alpha1.ProtocolALL)
					}
				}
			}
			out[o.Policy.Namespace+"/"+o.Policy.Name] = o.Policy.Spec
		}
	}
	return out
}

// TestGKE: GKE's manifests are converted as with another apiVersion alone, with a note for the pattern that
// has the names of the cluster too.
func TestGKE(t *testing.T) {
	files, err := filepath.Glob("../../crds/testdata/gke/*.yaml")
	fatal.If(t, err)
	var r Result
	var want strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		fatal.If(t, r.Add(file, text))
		want.WriteString("---\n" + strings.Replace(string(text), "networking.gke.io/v1alpha1", "namegate.io/v1alpha1", 1))
	}
	if len(files) < 15 || r.Policies != len(files) || len(r.Notes) != 1 || r.Notes[0].Object != "FQDNNetworkPolicy every-name" || r.Notes[0].Grade != Wider {
		t.Errorf("%d of %d files, notes %v", r.Policies, len(files), r.Notes)
	}
	if diff := cmp.Diff(specs(t, want.String()), specs(t, string(r.YAML)), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
