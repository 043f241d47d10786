package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// types are the kinds whose objects have a finding for each field.
var types = map[schema.GroupVersionKind]reflect.Type{
	v1alpha1.GroupVersion().WithKind(v1alpha1.Kind):           reflect.TypeFor[v1alpha1.FQDNNetworkPolicy](),
	v1alpha1.GroupVersion().WithKind(v1alpha1.ClusterKind):    reflect.TypeFor[v1alpha1.ClusterFQDNNetworkPolicy](),
	v1alpha1.GroupVersion().WithKind(v1alpha1.NodeKind):       reflect.TypeFor[v1alpha1.NodeNetworkPolicy](),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): reflect.TypeFor[networkingv1.NetworkPolicy](),
}

// oddity is a field that a type cannot hold.
type oddity struct{ path, message string }

// oddities compares an object with the type of its kind.
func (p place) oddities(kind schema.GroupVersionKind) []oddity {
	node := p.root
	for _, step := range steps(p.path) {
		if node == nil {
			return nil
		}
		_, node = child(node, step)
	}
	if t := types[kind]; t != nil && node != nil {
		return compare(nil, node, t, "")
	}
	return nil
}

// compare appends what of a value cannot be of a type. It knows the kinds of types
// that policies are made of, and finds nothing odd about others.
func compare(odd []oddity, node *yaml.Node, t reflect.Type, path string) []oddity {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if node.Tag == "!!null" || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return odd
	}
	want, kind := "", node.Kind
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		if kind == yaml.MappingNode {
			return compareFields(odd, node, t, path)
		}
		want = "an object"
	case reflect.Slice:
		if kind == yaml.SequenceNode {
			for i, item := range node.Content {
				odd = compare(odd, item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
			return odd
		}
		want = "a list"
	case reflect.String:
		if kind != yaml.ScalarNode || node.Tag != "!!str" || isTruth(node) {
			want = "text, in quotation marks where it could be something else"
		}
	case reflect.Int32, reflect.Int64:
		if kind != yaml.ScalarNode || node.Tag != "!!int" {
			want = "a whole number without quotation marks"
		}
	}
	if want == "" {
		return odd
	}
	return append(odd, oddity{path, fmt.Sprintf("is %s; write %s", kindOf(node), want)})
}

// compareFields is compare for an object, of a struct or a map.
func compareFields(odd []oddity, node *yaml.Node, t reflect.Type, path string) []oddity {
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i].Value
		at := strings.TrimPrefix(path+"."+key, ".")
		of, known := fields[key]
		switch {
		case key == "<<": // the merged fields are at their anchor
		case t.Kind() == reflect.Map:
			odd = compare(odd, node.Content[i+1], t.Elem(), at)
		case known:
			odd = compare(odd, node.Content[i+1], of, at)
		default:
			odd = append(odd, oddity{at, noField(key, fields)})
		}
	}
	return odd
}

// noField says which fields there are instead.
func noField(key string, fields map[string]reflect.Type) string {
	const most = 10 // more would not be read
	if len(fields) > most {
		return fmt.Sprintf("there is no field %q here", key)
	}
	return fmt.Sprintf("there is no field %q here; write one of %s", key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(fields, fieldsOf(f.Type))
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
	return fields
}

// kindOf names the kind of a value.
func kindOf(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "an object"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	}
	if isTruth(node) {
		return "true or false to YAML"
	}
	switch node.Tag {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false to YAML"
	}
	return "something else"
}

// isTruth tells whether plain text is a truth value of YAML 1.1, which manifests are
// read as, and no longer one of the parser's here. Source: https://yaml.org/type/bool.html.
func isTruth(node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode || node.Style != 0 {
		return false
	}
	switch strings.ToLower(node.Value) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}
