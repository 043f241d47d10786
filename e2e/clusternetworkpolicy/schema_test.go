package clusternetworkpolicy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/testkit/cnptest"
	"github.com/namegate/namegate/testkit/fatal"
)

// admission is the part of an API server that judges a ClusterNetworkPolicy.
type admission struct {
	structural *structuralschema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
}

func newAdmission(t *testing.T) *admission {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	fatal.If(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	fatal.If(t, err)
	var v1 apiextensionsv1.CustomResourceDefinition
	fatal.If(t, yaml.Unmarshal(text, &v1))
	i := slices.IndexFunc(v1.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == cnp.Resource().Version })
	var props apiextensions.JSONSchemaProps
	fatal.If(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1.Spec.Versions[i].Schema.OpenAPIV3Schema, &props, nil))
	structural, err := structuralschema.NewStructural(&props)
	fatal.If(t, err)
	schema, _, err := schemavalidation.NewSchemaValidator(&props)
	fatal.If(t, err)
	return &admission{structural, schema, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// refuses returns an API server's errors.
func (a *admission) refuses(o *unstructured.Unstructured) []string {
	var out []string
	errs := schemavalidation.ValidateCustomResource(nil, o.Object, a.schema)
	if len(errs) == 0 {
		errs, _ = a.rules.Validate(context.Background(), nil, a.structural, o.Object, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// schemaLines returns the lines of the golden file of an API server's answers, and holds the
// reader against them: it has a problem with what an API server refuses, and with no other policy
// but for the known cases.
func schemaLines(t *testing.T) []string {
	t.Helper()
	a := newAdmission(t)
	seen := map[string]int{}
	defer func() { t.Log(seen) }()
	return cnptest.SchemaLines(t, func(seed uint64, o *unstructured.Unstructured) byte {
		cnptest.ChangedPolicy(seed, func(o *unstructured.Unstructured) {
			if errs := a.refuses(o); errs != nil {
				t.Fatalf("seed %d: %q", seed, errs)
			}
		})
		errs, problems := a.refuses(o), cnp.Read(o).Problems
		known := cnptest.Agrees(errs != nil, problems)
		if seen[known]++; known == "" {
			text, err := yaml.Marshal(o.Object["spec"])
			fatal.If(t, err)
			t.Errorf("seed %d: an API server says %q, the reader %v\n%s", seed, errs, problems, text)
		}
		if errs != nil {
			return cnptest.Yes
		}
		return cnptest.No
	})
}
