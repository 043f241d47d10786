package chartstest

import (
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestCRD: the chart's copies equal the generated files, and the installed objects are these
// except for labels and the annotation that keeps them.
func TestCRD(t *testing.T) {
	installed := render(t, "").objects
	for _, resource := range []string{"fqdnnetworkpolicies", "clusterfqdnnetworkpolicies", "nodenetworkpolicies"} {
		file := "namegate.io_" + resource + ".yaml"
		generated, err := os.ReadFile("../../crds/" + file)
		fatal.If(t, err)
		ours, err := os.ReadFile(chartPath + "/crd/" + file)
		fatal.If(t, err)
		if string(ours) != string(generated) {
			t.Errorf("charts/namegate/crd/%s is not crds/%s; run: make generate", file, file)
		}
		var want apiextensionsv1.CustomResourceDefinition
		fatal.If(t, yaml.UnmarshalStrict(generated, &want))
		got := the[*apiextensionsv1.CustomResourceDefinition](t, installed, "CustomResourceDefinition/"+resource+".namegate.io")
		diff.Equal(t, "keep", got.Annotations["helm.sh/resource-policy"], resource, "would go with the chart")
		delete(got.Annotations, "helm.sh/resource-policy")
		got.Labels = nil
		diff.Error(t, &want, got, "generated, and installed")
	}
}
