package suggest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// order is the usual order of fields in a manifest: these first, all others behind them,
// by name.
var order = []string{
	"apiVersion", "kind", "metadata", "namespace", "name", "spec", "namespaceSelector", "podSelector", "matchLabels", "matchExpressions",
	"policyTypes", "egress", "to", "matches", "pattern", "ports", "protocol", "port", "endPort", "enforcement", "denied", "dns", "ttl",
}

// YAML returns the policy as a manifest, with apiVersion and kind and without its
// status: what `kubectl apply` and `namegate check` take. Equal policies are equal
// text.
func YAML(p v1alpha1.FQDNNetworkPolicy) ([]byte, error) {
	p.APIVersion, p.Kind = v1alpha1.GroupVersion().String(), v1alpha1.Kind
	p.Status = v1alpha1.FQDNNetworkPolicyStatus{}
	text, err := json.Marshal(p)
	if err == nil {
		text, err = inOrder(text)
	}
	if err != nil {
		return nil, fmt.Errorf("write policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	return text, nil
}

// inOrder returns an object of JSON as YAML in the order of people.
func inOrder(text []byte) ([]byte, error) {
	var fields map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&fields); err != nil {
		return nil, err
	}
	return goyaml.Marshal(ordered(fields))
}

// ordered returns a value of JSON in which the fields of objects have an order.
func ordered(value any) any {
	switch v := value.(type) {
	case map[string]any:
		fields := goyaml.MapSlice{}
		for _, key := range slices.SortedFunc(maps.Keys(v), compareFields) {
			fields = append(fields, goyaml.MapItem{Key: key, Value: ordered(v[key])})
		}
		return fields
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = ordered(v[i])
		}
		return items
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	}
	return value
}

func compareFields(a, b string) int {
	rank := func(field string) int {
		if i := slices.Index(order, field); i >= 0 {
			return i
		}
		return len(order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// List returns policies as one JSON object that `kubectl apply` and `namegate check`
// take.
func List(policies []v1alpha1.FQDNNetworkPolicy) ([]byte, error) {
	list := struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}{"v1", "List", []map[string]any{}}
	for _, p := range policies {
		text, err := YAML(p)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := yaml.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("write policy %s/%s: %w", p.Namespace, p.Name, err)
		}
		list.Items = append(list.Items, fields)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write policies: %w", err)
	}
	return append(text, '\n'), nil
}
