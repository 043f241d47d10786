package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/source/manifest"
)

// Grade is how an object, or a part of it, was converted.
type Grade string

// The grades. Wider and Failed need a person.
const (
	Noted    Grade = "note"     // is to be known beside the policies
	Changed  Grade = "changed"  // is written otherwise, with the same meaning
	Dropped  Grade = "dropped"  // is left out, and has no effect on what is allowed
	Narrower Grade = "narrower" // allows less than before
	Wider    Grade = "wider"    // allows more than before
	Failed   Grade = "failed"   // is left out, or does not work as it is
)

// Note is one part that was not taken over as it is.
type Note struct {
	File    string
	Line    int // of the document
	Grade   Grade
	Object  string // "FQDNNetworkPolicy shop/allow-out"
	Path    string // of the field, "" for the whole object
	Message string
}

// String returns the note in one line.
func (n Note) String() string {
	parts := []string{fmt.Sprintf("%s:%d", n.File, n.Line), string(n.Grade), n.Object}
	if n.Path != "" {
		parts = append(parts, n.Path)
	}
	return strings.Join(append(parts, n.Message), ": ")
}

// Result is the converted manifests.
type Result struct {
	Namespace     string // of objects that name none, as kubectl has it; "" leaves them without
	ClusterDomain string // "cluster.local" if it is empty

	YAML     []byte // a document for each policy
	Policies int
	Notes    []Note
	names    map[string]bool // of the policies, with their kinds
	objects  []*object       // what was added

	hosts     []calicoHost // of Calico
	failsafes bool         // they are in the notes, as is safeguard
	safeguard bool
}

// Certain tells whether every object was converted, and no policy allows more than before.
func (r *Result) Certain() bool {
	for _, n := range r.Notes {
		if n.Grade == Wider || n.Grade == Failed {
			return false
		}
	}
	return true
}

// Add reads the documents of a file.
func (r *Result) Add(name string, text []byte) error {
	parts, err := manifest.Inspect(name, text)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	for _, part := range parts {
		if part.Err != nil {
			r.Notes = append(r.Notes, Note{File: name, Line: part.Line, Grade: Failed, Object: "document", Message: part.Err.Error()})
			continue
		}
		for i := range part.Objects {
			o := &part.Objects[i]
			if !strings.HasSuffix(o.Kind, "List") {
				r.add(name, part.Line, o.APIVersion, o.Kind, o.JSON)
			} else if !slices.ContainsFunc(part.Objects, func(item manifest.Object) bool {
				return strings.HasPrefix(item.Path, strings.TrimPrefix(o.Path+".items[", "."))
			}) {
				r.list(name, part.Line, o.JSON)
			}
		}
	}
	return nil
}

// list adds the objects of a list of another system, which the reader of manifests does not
// take apart.
func (r *Result) list(file string, line int, text []byte) {
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		r.Notes = append(r.Notes, Note{File: file, Line: line, Grade: Failed, Object: "document", Message: err.Error()})
		return
	}
	for _, item := range list.Items {
		var head struct{ APIVersion, Kind string }
		_ = json.Unmarshal(item, &head) // without a kind it is no source
		r.add(file, line, head.APIVersion, head.Kind, item)
	}
}

// add adds one object.
func (r *Result) add(file string, line int, version, kind string, text []byte) {
	o := &object{r: r, file: file, line: line, version: version, kind: kind, json: text}
	var head struct {
		Metadata struct{ Name, Namespace string }
	}
	_ = json.Unmarshal(text, &head) // the strict reading below says why
	if o.name, o.namespace = head.Metadata.Name, head.Metadata.Namespace; o.namespace == "" {
		o.namespace = r.Namespace
	}
	r.objects = append(r.objects, o)
}

// Convert converts what was added: it is after all of it, because policies depend on host endpoints.
func (r *Result) Convert() {
	for _, hosts := range []bool{true, false} {
		for _, o := range r.objects {
			if (o.kind == calicoHosts) == hosts {
				o.convert()
			}
		}
	}
	r.objects = nil
	r.denyHosts()
}

func (o *object) convert() {
	s, known := sourceOf(o.version, o.kind)
	if o.cluster = s.cluster; !known {
		o.note(Failed, "", "%s of %s is not converted; namegate convert --help lists the kinds", o.kind, o.version)
		return
	}
	s.convert(o)
}
