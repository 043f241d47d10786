package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/source/manifest"
)

// Manifests is what files hold together.
type Manifests struct {
	Files    []string  // in the order in which they were read
	Policies []*Policy // of every kind, in the order of the files
	Pods     []Pod
	// Namespaces are the labels of the namespaces in the files.
	Namespaces map[string]map[string]string
	Services   []Service
	// Nodes are the labels of nodes.
	Nodes     map[string]map[string]string
	nodeAddrs map[string][]netip.Addr
	// Skipped counts the objects of other kinds, by "apiVersion kind".
	Skipped  map[string]int
	findings []Finding
	known    map[string]place       // of policies
	pods     map[policy.PodRef]bool // of Pods
	cluster  *cluster               // nil if files alone are checked
	byLog    []Unchecked            // the names that the log tells nothing about
}

// Pod is a pod, or what makes such pods.
type Pod struct {
	policy.Pod
	// Kind is Pod, or the kind whose template it is.
	Kind  string
	ports []policy.NamedPort // of its containers, those without a name too
	addrs []netip.Addr       // of an object that an API server has written
	node  string             // on which it runs, "" where that is not known
}

// New returns manifests of no file.
func New() *Manifests {
	return &Manifests{
		Namespaces: map[string]map[string]string{}, Nodes: map[string]map[string]string{}, Skipped: map[string]int{},
		nodeAddrs: map[string][]netip.Addr{}, known: map[string]place{}, pods: map[policy.PodRef]bool{},
	}
}

// maxFile bounds one file, as the source of manifests does.
const maxFile = 64 << 20

// Read reads files, folders and, for "-", stdin, as Files does. Lint reports the errors in
// the files; the error is for paths that are missing or unreadable.
func Read(paths []string, stdin io.Reader, deep bool) (*Manifests, error) {
	m := New()
	if err := Files(paths, stdin, deep, m.Add); err != nil {
		return nil, err
	}
	return m, nil
}

// Files calls add with the name and the text of files, of the files of folders and, for "-",
// of stdin. Of a folder these are the files *.yaml, *.yml and *.json whose names begin with no
// dot, and with deep those of its folders. The error is for paths that are missing or
// unreadable, or add's.
func Files(paths []string, stdin io.Reader, deep bool, add func(name string, text []byte) error) error {
	for _, path := range paths {
		if path == "-" {
			if err := read("stdin", stdin, add); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no file or folder %s; write the path of a manifest, of a folder, or - for the standard input", path)
		case err != nil:
			return fmt.Errorf("read manifests: %w", err)
		case info.IsDir():
			err = folder(path, deep, add)
		default:
			err = file(path, add)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func folder(path string, deep bool, add func(name string, text []byte) error) error {
	within := os.DirFS(path) // also of a link to a folder, which filepath.WalkDir does not follow
	err := fs.WalkDir(within, ".", func(at string, entry fs.DirEntry, err error) error {
		switch hidden := at != "." && strings.HasPrefix(entry.Name(), "."); {
		case err != nil:
			return err
		case entry.IsDir() && at != "." && (hidden || !deep):
			return fs.SkipDir
		case entry.IsDir() || hidden:
			return nil
		}
		switch strings.ToLower(filepath.Ext(at)) {
		case ".yaml", ".yml", ".json":
			if info, err := fs.Stat(within, at); err == nil && info.IsDir() {
				return nil // a link to one
			}
			return file(filepath.Join(path, at), add)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read folder %s: %w", path, err)
	}
	return nil
}

func file(path string, add func(name string, text []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return read(path, f, add)
}

func read(name string, from io.Reader, add func(name string, text []byte) error) error {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("%s is over %d bytes; split it", name, maxFile)
	}
	return add(name, text)
}

// Add reads one file's text. Its name says where findings are.
func (m *Manifests) Add(name string, text []byte) error {
	parts, err := manifest.Inspect(name, text)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	m.Files = append(m.Files, name)
	for _, part := range parts {
		if part.Err != nil {
			m.find(Finding{File: name, Line: part.Line, Severity: Error, Reason: Unreadable, Message: console.OneLine(part.Err.Error())})
			continue
		}
		at := newPlace(name, part.Line, part.Text)
		for i := range part.Objects {
			at.path = part.Objects[i].Path
			m.object(at, &part.Objects[i])
		}
	}
	return nil
}

func (m *Manifests) find(f Finding) { m.findings = append(m.findings, f) }

// object takes one object of a file.
func (m *Manifests) object(at place, o *manifest.Object) {
	switch p := newPolicy(at, o); {
	case o.Err != nil:
		m.unreadable(at, o)
	case p != nil:
		m.take(p)
	case o.Pod != nil:
		spec := specOfPod(o)
		m.pod(Pod{Pod: *o.Pod, Kind: "Pod", ports: spec.ports(), node: spec.NodeName})
	case o.APIVersion == "v1" && o.Kind == "Service" && m.service(at, o):
	case o.APIVersion == "v1" && o.Kind == "Namespace":
		labels := map[string]string{}
		maps.Copy(labels, o.Labels)
		labels[corev1.LabelMetadataName] = o.Name
		if m.Namespaces[o.Name] == nil || at.file != "" {
			m.Namespaces[o.Name] = labels
		}
	case o.APIVersion == "v1" && o.Kind == "Node" && o.Labels != nil:
		if m.Nodes[o.Name] == nil || at.file != "" {
			m.Nodes[o.Name] = o.Labels
			var node corev1.Node
			_ = json.Unmarshal(o.JSON, &node) // it was decoded once
			m.nodeAddrs[o.Name] = policy.NodeAddrs(&node, func(int, string) {})
		}
	default:
		if pod, ports, ok := template(o); ok {
			m.pod(Pod{Pod: pod, Kind: o.Kind, ports: ports})
			return
		}
		m.Skipped[o.APIVersion+" "+o.Kind]++
	}
}

// unreadable reports the errors of an object: of a policy or NetworkPolicy each invalid
// field, else the decoder's message.
func (m *Manifests) unreadable(at place, o *manifest.Object) {
	f := Finding{File: at.file, Line: at.at(""), Severity: Error, Reason: Unreadable, Object: nameOf(o), Message: console.OneLine(o.Err.Error())}
	if o.APIVersion == "v1" && o.Kind != "List" {
		f.Severity = Warning // the fields of a pod are the API server's to check
	}
	odd := at.oddities(o.GroupVersionKind())
	for _, each := range odd {
		f.Path, f.Line, f.Message = each.path, at.at(each.path), each.message
		m.find(f)
	}
	if len(odd) == 0 {
		m.find(f)
	}
}

// nameOf names an object that could not be read, as far as it can be told.
func nameOf(o *manifest.Object) string {
	if o.Name == "" || o.Kind == "" {
		return ""
	}
	kind := strings.ToLower(o.Kind)
	switch o.Kind {
	case v1alpha1.Kind:
		kind = "policy"
	case v1alpha1.ClusterKind:
		return cfqdnnp.Object(o.Name)
	case v1alpha1.NodeKind:
		return nnp.Object(o.Name)
	case cnp.Kind:
		return cnp.Object(o.Name)
	}
	return kind + " " + cmp.Or(o.Namespace, metav1.NamespaceDefault) + "/" + o.Name
}

// pod takes a pod, and keeps its addresses aside: they say nothing of names, and pods of
// several nodes and times may share them. Its kind tells it from others of its name.
func (m *Manifests) pod(p Pod) {
	p.addrs, p.IPs, p.UID = p.IPs, nil, p.Kind
	if !m.pods[p.PodRef] {
		m.pods[p.PodRef] = true
		m.Pods = append(m.Pods, p)
	}
}
