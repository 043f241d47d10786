package suggest

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// YAML returns policies, or NetworkPolicies, as manifests that `kubectl apply` and `namegate check`
// take, with their fields in the order of the API. Equal ones are equal text.
func YAML[T metav1.Object](objects ...T) ([]byte, error) {
	var out [][]byte
	for _, o := range objects {
		text, err := json.Marshal(o)
		var fields goyaml.MapSlice
		if err == nil {
			err = goyaml.Unmarshal(text, &fields)
		}
		if err == nil {
			fields[0], fields[1] = fields[1], fields[0] // apiVersion before kind
			text, err = goyaml.Marshal(fields)
		}
		if err != nil {
			return nil, fmt.Errorf("write policy %s: %w", o.GetName(), err)
		}
		out = append(out, text)
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// List returns the applicable policies as one JSON object that `kubectl apply` and `namegate check`
// take.
func (s Suggestion) List() ([]byte, error) {
	text, err := json.MarshalIndent(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Items      []metav1.Object `json:"items"`
	}{"v1", "List", append([]metav1.Object{}, s.objects()...)}, "", "  ")
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
