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

// clusterOrder is order for a cluster policy.
var clusterOrder = []string{
	"apiVersion", "kind", "metadata", "name", "spec", "tier", "priority", "subject", "key", "operator", "values", "egress", "action", "matches", "pattern", "networks", "ports", "protocol", "port", "endPort",
}

// YAML returns the policy as a manifest, with apiVersion and kind and without its
// status: what `kubectl apply` and `namegate check` take. Equal policies are equal
// text.
func YAML(p v1alpha1.FQDNNetworkPolicy) ([]byte, error) {
	p.APIVersion, p.Kind = v1alpha1.GroupVersion().String(), v1alpha1.Kind
	p.Status = v1alpha1.FQDNNetworkPolicyStatus{}
	text, err := manifest(p, order)
	if err != nil {
		return nil, fmt.Errorf("write policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	return text, nil
}

// ClusterYAML is YAML for a cluster policy.
func ClusterYAML(p v1alpha1.ClusterFQDNNetworkPolicy) ([]byte, error) {
	p.APIVersion, p.Kind = v1alpha1.GroupVersion().String(), v1alpha1.ClusterKind
	p.Status = v1alpha1.ClusterFQDNNetworkPolicyStatus{}
	text, err := manifest(p, clusterOrder)
	if err != nil {
		return nil, fmt.Errorf("write cluster policy %s: %w", p.Name, err)
	}
	return text, nil
}

// manifest returns an object as YAML with its fields in an order.
func manifest(object any, order []string) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&fields); err != nil {
		return nil, err
	}
	return goyaml.Marshal(ordered(fields, order))
}

// ordered returns a value of JSON in which the fields of objects have an order.
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
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
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
	var texts [][]byte
	for _, p := range s.Policies() {
		text, err := YAML(p)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	for _, w := range s.Workloads {
		for _, n := range w.NetworkPolicies {
			text, err := NetworkYAML(n)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
	}
	return list(texts)
}

// list returns manifests as one List.
func list(manifests [][]byte) ([]byte, error) {
	list := struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}{"v1", "List", []map[string]any{}}
	for _, text := range manifests {
		var fields map[string]any
		if err := yaml.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("write policies: %w", err)
		}
		list.Items = append(list.Items, fields)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write policies: %w", err)
	}
	return append(text, '\n'), nil
}
