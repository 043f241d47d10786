package suggest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// order is the usual order of fields in a manifest: these first, all others behind them,
// by name. Labels have it too.
var order = []string{
	"apiVersion", "kind", "metadata", "namespace", "name", "spec", "namespaceSelector", "podSelector", "matchLabels", "matchExpressions",
	"policyTypes", "egress", "to", "matches", "pattern", "ports", "protocol", "port", "endPort", "enforcement", "denied", "dns", "ttl",
}

// clusterOrder is order for a cluster policy.
var clusterOrder = []string{
	"apiVersion", "kind", "metadata", "name", "spec", "tier", "priority", "subject", "key", "operator", "values", "egress", "action", "matches", "pattern", "networks", "ports", "protocol", "port", "endPort",
}

// YAML returns policies, or NetworkPolicies, as manifests that `kubectl apply` and `namegate check`
// take. Equal ones are equal text.
func YAML[T metav1.Object](objects ...T) ([]byte, error) {
	var out [][]byte
	for _, o := range objects {
		fields, err := fieldsOf(o)
		if err != nil {
			return nil, err
		}
		by := order
		if fields["kind"] == v1alpha1.ClusterKind {
			by = clusterOrder
		}
		text, err := goyaml.Marshal(ordered(fields, by))
		if err != nil {
			return nil, fmt.Errorf("write policy %s: %w", o.GetName(), err)
		}
		out = append(out, text)
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// fieldsOf returns the fields of an object as JSON has them.
func fieldsOf(o metav1.Object) (fields map[string]any, err error) {
	if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o); err != nil {
		return nil, fmt.Errorf("write policy %s: %w", o.GetName(), err)
	}
	return fields, nil
}

// ordered returns a value of JSON in which the fields of objects have their order.
func ordered(value any, order []string) any {
	switch v := value.(type) {
	case map[string]any:
		fields := goyaml.MapSlice{}
		for _, key := range slices.SortedFunc(maps.Keys(v), func(a, b string) int { return compareFields(a, b, order) }) {
			fields = append(fields, goyaml.MapItem{Key: key, Value: ordered(v[key], order)})
		}
		return fields
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = ordered(v[i], order)
		}
		return items
	}
	return value
}

func compareFields(a, b string, order []string) int {
	rank := func(field string) int {
		if i := slices.Index(order, field); i >= 0 {
			return i
		}
		return len(order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// List returns the applicable policies as one JSON object that `kubectl apply` and `namegate check`
// take.
func (s Suggestion) List() ([]byte, error) {
	items := []map[string]any{}
	for _, o := range s.objects() {
		fields, err := fieldsOf(o)
		if err != nil {
			return nil, err
		}
		items = append(items, fields)
	}
	text, err := json.MarshalIndent(struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}{"v1", "List", items}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write policies: %w", err)
	}
	return append(text, '\n'), nil
}

// objects returns the applicable objects: of all parts the policies before the NetworkPolicies.
func (s Suggestion) objects() (all []metav1.Object) {
	for i := range s.Parts {
		if p := &s.Parts[i]; p.unlabelled() == "" {
			all = append(all, p.objects()...)
		}
	}
	for _, p := range s.Parts {
		for _, n := range p.NetworkPolicies {
			all = append(all, n)
		}
	}
	return all
}
