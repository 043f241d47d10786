package manifest

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestGKE: each of GKE's manifests opens what its lines "#: NAME PORTS…" say, with no change
// but that of the apiVersion.
func TestGKE(t *testing.T) {
	files, err := filepath.Glob("../../crds/testdata/gke/*.yaml")
	fatal.If(t, err)
	if len(files) < 15 {
		t.Fatalf("%d manifests", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			fatal.If(t, err)
			objects, err := decode(t, "", file, strings.Replace(string(text), "networking.gke.io/v1alpha1", "namegate.io/v1alpha1", 1))
			fatal.If(t, err)
			p := objects[0].Policy
			if problems := fqdnnp.Validate(p); len(problems) > 0 {
				t.Error(problems)
			}
			pod := policy.Pod{PodRef: policy.PodRef{Namespace: p.Namespace, Name: "a"}, Labels: map[string]string{"app": "client"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
			s := compile.New().Compile(compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{p}, Pods: []policy.Pod{pod}})
			if len(s.Problems) > 0 || len(s.Views) != 1 || !s.Views[0].Enforced {
				t.Fatalf("%d views, problems %v", len(s.Views), s.Problems)
			}
			said := 0
			for line := range strings.Lines(string(text)) {
				words := strings.Fields(line)
				if words[0] != "#:" {
					continue
				}
				said++
				name, err := fqdn.ParseName(words[1])
				fatal.If(t, err)
				var got []string
				for _, o := range s.Views[0].Decide(name).Openings(0) {
					got = append(got, string(o.Ports))
				}
				slices.Sort(got)
				if len(got) == 0 {
					got = []string{"-"}
				}
				if !slices.Equal(got, words[2:]) {
					t.Errorf("%s opens %q, want %q", words[1], got, words[2:])
				}
			}
			if said == 0 {
				t.Error("the manifest says nothing")
			}
		})
	}
}
