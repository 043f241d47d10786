package kube

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

// testAdmission: kubectl apply refuses every invalid manifest of the table with a
// message that says what to write, and takes every valid one.
func testAdmission(t *testing.T) {
	s := begin(t, "admission")
	text, err := os.ReadFile("../../crds/testdata/admission.yaml")
	fatal.If(t, err)
	cluster, err := os.ReadFile("../../crds/testdata/admission-cluster.yaml")
	fatal.If(t, err)
	refused := 0
	for _, doc := range strings.Split(string(text)+"\n"+string(cluster), "\n---\n") {
		var c struct {
			Name, Manifest string
			Refused        []string
		}
		fatal.If(t, yaml.Unmarshal([]byte(doc), &c))
		if c.Manifest == "" {
			continue
		}
		c.Manifest = strings.ReplaceAll(c.Manifest, "namespace: shop", "namespace: "+s.ns)
		args := []string{"apply", "--dry-run=server", "-f", "-"}
		if !strings.Contains(c.Manifest, "namespace:") {
			args = append(args, "-n", s.ns)
		}
		_, err := the.Kubectl(s.ctx, c.Manifest, args...)
		switch {
		case len(c.Refused) == 0 && err != nil:
			t.Errorf("%s: refused: %v", c.Name, err)
		case len(c.Refused) > 0 && err == nil:
			t.Errorf("%s: taken", c.Name)
		}
		for _, text := range c.Refused {
			refused++
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the refusal does not say %q: %v", c.Name, text, err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d refusals are in the table", refused)
	}
	t.Logf("%d refusals", refused)
}
