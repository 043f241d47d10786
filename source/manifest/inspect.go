package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// Part is one document of a file as it is by itself, whatever is wrong with others.
type Part struct {
	Line    int    // its first line in the file, from 1
	Text    []byte // the file's text from that line on
	Objects []Object
	// Err is why the document cannot be read; it names lines only where the parser does.
	Err error
}

// Object is one object of a document.
type Object struct {
	Path string // "items[2]" in a list, else ""
	metav1.TypeMeta
	Name, Namespace string // as written
	// At most one of these is set: none for an object that is not read from files, or
	// that Err speaks of.
	Policy        *v1alpha1.FQDNNetworkPolicy
	ClusterPolicy *v1alpha1.ClusterFQDNNetworkPolicy
	NetworkPolicy *networkingv1.NetworkPolicy
	Pod           *policy.Pod
	// ClusterNetworkPolicy is one of the standard, as it is written.
	ClusterNetworkPolicy *unstructured.Unstructured
	// Labels are those of a Namespace or Node.
	Labels map[string]string
	// JSON is the object.
	JSON []byte
	Err  error // why it cannot be read
}

// Inspect reads each document of the file name, by the rules of the source, with every pod
// local. A broken object is in its place, with its error.
func Inspect(name string, text []byte) ([]Part, error) {
	d, err := newDecoder("")
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	ctx := context.Background()
	var parts []Part
	if strings.EqualFold(filepath.Ext(name), ".json") {
		docs, err := splitJSON(ctx, text)
		for _, doc := range docs {
			p := Part{Line: doc.line, Text: doc.json}
			if doc.json == nil {
				p.Err = errors.Unwrap(err)
			} else {
				p.Objects = d.inspect("", doc.json)
			}
			parts = append(parts, p)
		}
		return parts, nil
	}
	err = eachPart(ctx, text, func(part []byte, first int) error {
		p := Part{Line: first, Text: bytes.Clone(part)}
		asJSON, err := toJSON(part, first)
		if p.Err = err; err == nil {
			p.Objects = d.inspect("", asJSON)
		}
		parts = append(parts, p)
		return nil
	})
	return parts, err
}

// InspectServed reads objects as an API server serves them, as Inspect does. It ignores
// unknown fields of Kubernetes' own kinds, which are those of a newer API server.
func InspectServed(items [][]byte) ([]Object, error) {
	d, err := newDecoder("")
	if err != nil {
		return nil, err
	}
	d.served = true
	var objects []Object
	for _, item := range items {
		objects = append(objects, d.inspect("", item)...)
	}
	return objects, nil
}

// inspect returns the object of a document, or the objects of a list.
func (d *decoder) inspect(path string, text []byte) []Object {
	o := Object{Path: path, JSON: text}
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name, Namespace string }
		Items    []json.RawMessage
	}
	// An unreadable head is reported below.
	_ = json.Unmarshal(text, &head)
	o.TypeMeta, o.Name, o.Namespace = head.TypeMeta, head.Metadata.Name, head.Metadata.Namespace
	switch o.Kind {
	case "List", v1alpha1.Kind + "List", v1alpha1.ClusterKind + "List", kindNetworkPolicy + "List", cnp.Kind + "List":
		return d.inspectList(o, head.Items)
	}
	found, err := d.bare(text)
	o.Err = err
	if len(found) == 1 {
		o.Policy, o.ClusterPolicy, o.NetworkPolicy, o.Pod = found[0].policy, found[0].clusterPolicy, found[0].networkPolicy, found[0].pod
		o.ClusterNetworkPolicy = found[0].standard
		if ns := found[0].namespace; ns != nil {
			o.Labels = ns.Labels
		} else if node := found[0].node; node != nil {
			o.Labels = node.Labels
		}
	}
	return []Object{o}
}

// inspectList returns a list's objects, or the list itself if it is none.
func (d *decoder) inspectList(list Object, items []json.RawMessage) []Object {
	var objects []Object
	for i, item := range items {
		objects = append(objects, d.inspect(strings.TrimPrefix(fmt.Sprintf("%s.items[%d]", list.Path, i), "."), item)...)
	}
	if _, _, err := d.strict.Decode(list.JSON, nil, nil); err != nil {
		list.Err = err
		objects = append(objects, list)
	}
	return objects
}

// bare returns the object of a document, with an error that does not name the document's
// place.
func (d *decoder) bare(text []byte) ([]object, error) {
	const nowhere = "document"
	found, err := d.document(nowhere, text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), nowhere+": "))
	}
	return found, nil
}
