// Package schematest runs the API server's own checks on the manifests of the kinds,
// without an API server. It is a separate module so that the
// dependencies of those checks stay out of the agent's.
package schematest

import (
	"context"
	"maps"
	"os"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// kind is one kind of the group.
type kind struct {
	resource string
	cases    string // the file of them, in ../testdata
	least    string // the least spec
	defaults map[string]any
}

func kinds() []kind {
	settings := map[string]any{
		"enforcement": "Enforce", "denied": "Reject", "dns.unmatched": "Resolve",
		"ttl.minSeconds": int64(30), "ttl.maxSeconds": int64(3600), "ttl.graceSeconds": int64(60),
		"ttl.inUse": "Renew", "ttl.reuseSeconds": int64(86400),
	}
	cluster := maps.Clone(settings)
	cluster["dns.denied"] = "NXDomain"
	node := maps.Clone(cluster)
	node["traffic"] = "Local"
	return []kind{
		{"fqdnnetworkpolicies", "admission.yaml", "{podSelector: {}}", settings},
		{"clusterfqdnnetworkpolicies", "admission-cluster.yaml", "{tier: Admin, priority: 0, subject: {namespaces: {}}}", cluster},
		{"nodenetworkpolicies", "admission-node.yaml", "{nodeSelector: {}, priority: 0}", node},
	}
}

func eachKind(t *testing.T, test func(*testing.T, kind)) {
	for _, k := range kinds() {
		t.Run(k.resource, func(t *testing.T) { test(t, k) })
	}
}

// admission is the part of an API server that judges a custom resource.
type admission struct {
	structural *structuralschema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
}

func (k kind) readCRD(t *testing.T) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile("../namegate.io_" + k.resource + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	crd := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, crd, nil); err != nil {
		t.Fatal(err)
	}
	return crd
}

func (k kind) newAdmission(t *testing.T) *admission {
	t.Helper()
	props := k.readCRD(t).Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	schema, _, err := schemavalidation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	return &admission{structural, schema, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// fillIn writes the defaults into object.
func (a *admission) fillIn(object map[string]any) { defaulting.Default(object, a.structural) }

// admit returns an API server's errors for a manifest; none if it accepts it.
func (a *admission) admit(t *testing.T, text string) []string {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(asJSON, &object); err != nil { // whole numbers become int64, as in an API server
		t.Fatal(err)
	}
	a.fillIn(object)
	errs := schemavalidation.ValidateCustomResource(nil, object, a.schema)
	more, _ := a.rules.Validate(context.Background(), nil, a.structural, object, nil, celconfig.RuntimeCELCostBudget)
	var said []string
	for _, err := range append(errs, more...) {
		said = append(said, err.Error())
	}
	return said
}

// TestEstablished runs the checks that an API server makes before it serves the
// kind: structure, defaults, and the estimated cost of every rule.
func TestEstablished(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, err := range establish(t, k.readCRD(t)) {
			t.Error(err)
		}
	})
}

func establish(t *testing.T, crd *apiextensions.CustomResourceDefinition) field.ErrorList {
	crd.Status.StoredVersions = []string{"v1alpha1"}
	return crdvalidation.ValidateCustomResourceDefinition(t.Context(), crd)
}

// TestCostBudget keeps the estimated cost of the rules at half of an API server's limit,
// so that a limit can be raised later: with twice the rules the kind is served as well.
func TestCostBudget(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		crd := k.readCRD(t)
		spec := crd.Spec.Validation.OpenAPIV3Schema.Properties["spec"]
		egress := spec.Properties["egress"]
		*egress.MaxItems *= 2
		for _, err := range establish(t, crd) {
			t.Error(err)
		}
		*egress.MaxItems *= 1000
		if len(establish(t, crd)) == 0 {
			t.Error("two thousand times the rules are within the budget too: nothing was estimated")
		}
	})
}
