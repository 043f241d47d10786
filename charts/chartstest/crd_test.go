package chartstest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/fatal"
)

const crdFile = "namegate.io_fqdnnetworkpolicies.yaml"

// TestCRD: the chart's copy equals the generated file, and the installed object is that
// except for labels and the annotation that keeps it.
func TestCRD(t *testing.T) {
	generated, err := os.ReadFile("../../crds/" + crdFile)
	fatal.If(t, err)
	ours, err := os.ReadFile(chartPath + "/crd/" + crdFile)
	fatal.If(t, err)
	if string(ours) != string(generated) {
		t.Errorf("charts/namegate/crd/%s is not crds/%s; run: make generate", crdFile, crdFile)
	}
	var want apiextensionsv1.CustomResourceDefinition
	fatal.If(t, yaml.UnmarshalStrict(generated, &want))
	got := the[*apiextensionsv1.CustomResourceDefinition](t, render(t, "").objects, "CustomResourceDefinition/fqdnnetworkpolicies.namegate.io")
	if got.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("policies would go with the chart")
	}
	delete(got.Annotations, "helm.sh/resource-policy")
	got.Labels = nil
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("-generated +installed:\n%s", d)
	}
}
