package clusternetworkpolicy

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy/api/cnp"
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

// perturb changes one value somewhere below.
func (g *maker) perturb(v any) any {
	odd := []any{int64(0), int64(-1), int64(70000), int64(443), "", "x", "Deny", "*.", "10.0.0.0/8", "10.0.0.0", []any{}, object{}, true}
	switch v := v.(type) {
	case object:
		if len(v) == 0 || g.in(6) {
			break
		}
		keys := slices.Sorted(maps.Keys(v))
		k := keys[g.IntN(len(keys))]
		switch g.IntN(6) {
		case 0:
			delete(v, k)
		case 1:
			v[g.one("domainNames", "networks", "tcp", "destinationNamedPort", "number", "priority")] = odd[g.IntN(len(odd))]
		default:
			v[k] = g.perturb(v[k])
		}
		return v
	case []any:
		if len(v) == 0 || g.in(6) {
			break
		}
		if g.in(6) {
			return slices.Repeat(v, 1+25/len(v))
		}
		i := g.IntN(len(v))
		v[i] = g.perturb(v[i])
		return v
	}
	return odd[g.IntN(len(odd))]
}

// letIn are the problems of the reader with what an API server lets in: fields that it would
// prune, selectors, of which the schema has no checks, and the cases of the standard's words.
var letIn = []string{
	"unknown field", "the field is unknown", "label selector operator", "Invalid value",
	"domainNames works with Accept alone",
	"write exactly one of tcp, udp, sctp and destinationNamedPort", // which is written, and empty
}

// TestSchema: the reader has a problem with what an API server refuses, and with no other
// policy but for the known cases.
func TestSchema(t *testing.T) {
	a := newAdmission(t)
	seen := map[string]int{}
	for seed := range uint64(5000) {
		g := &maker{rand.New(rand.NewPCG(seed, 13))}
		o := g.cnp(0)
		if errs := a.refuses(o); errs != nil {
			t.Fatalf("seed %d: %q", seed, errs)
		}
		o.Object["spec"] = g.perturb(o.Object["spec"])
		errs, problems := a.refuses(o), cnp.Read(o).Problems
		known := slices.IndexFunc(letIn, func(s string) bool { return strings.Contains(fmt.Sprint(problems), s) })
		switch {
		case (errs == nil) == (problems == nil):
			seen[fmt.Sprint("refused by both: ", errs != nil)]++
		case known >= 0:
			seen[letIn[known]]++
		default:
			text, err := yaml.Marshal(o.Object["spec"])
			fatal.If(t, err)
			t.Errorf("seed %d: an API server says %q, the reader %v\n%s", seed, errs, problems, text)
		}
	}
	t.Log(seen)
}
