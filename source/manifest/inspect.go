package manifest

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
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
	NodePolicy    *v1alpha1.NodeNetworkPolicy
	NetworkPolicy *networkingv1.NetworkPolicy
	Pod           *policy.Pod
	// ClusterNetworkPolicy is one of the standard, as it is written.
	ClusterNetworkPolicy *unstructured.Unstructured
	// Labels are those of a Namespace or Node.
	Labels map[string]string
	// JSON is the object.
	JSON []byte
	Err  error // why it cannot be read

	at      string      // its position in the file
	key     string      // "policy shop/allow-out": its kind and its name
	node    *policy.Pod // as a peer
	ignored string      // why it is left out
}

// Inspect reads each document of the file name, by the rules of the source, with every pod
// local. A broken object is in its place, with its error.
func Inspect(name string, text []byte) (parts []Part, err error) {
	d, err := newDecoder("")
	if err != nil {
		return nil, err
	}
	err = d.each(context.Background(), name, text, func(p Part) error {
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
		objects = append(objects, d.objects("", item)...)
	}
	return objects, nil
}

// each calls do with each document of a file that is not empty. An error of ctx, which is asked before each
// document, or of do ends it, and is returned.
func (d *decoder) each(ctx context.Context, name string, text []byte, do func(Part) error) error {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	eachDocument := eachYAML
	if strings.EqualFold(filepath.Ext(name), ".json") {
		eachDocument = eachJSON
	}
	return eachDocument(text, func(line int, text []byte, toJSON func() ([]byte, error)) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := Part{Line: line, Text: bytes.Clone(text)}
		asJSON, err := toJSON()
		if p.Err = err; err == nil {
			p.Objects = d.objects("", asJSON)
		}
		return do(p)
	})
}

// file returns the objects of a file, or an error that says which of its
// documents is broken and how. It stops between two documents when ctx ends.
func (d *decoder) file(ctx context.Context, name string, text []byte) ([]Object, error) {
	var objects []Object
	number := 0
	err := d.each(ctx, name, text, func(p Part) error {
		number++
		at := fmt.Sprintf("document %d (line %d)", number, p.Line)
		if p.Err != nil {
			return fmt.Errorf("%s: %w", at, p.Err)
		}
		for _, o := range p.Objects {
			o.at = strings.TrimSuffix(at+" "+o.Path, " ")
			if o.Err != nil {
				return fmt.Errorf("%s: %w", o.at, o.Err)
			}
			o.JSON = nil
			objects = append(objects, o)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}
