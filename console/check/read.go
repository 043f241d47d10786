package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// Manifests is what files hold together.
type Manifests struct {
	Files    []string // in the order in which they were read
	Policies []Policy
	// ClusterPolicies are the ClusterFQDNNetworkPolicies and ClusterNetworkPolicies, each kind
	// in the order of the files.
	ClusterPolicies []ClusterPolicy
	// NetworkPolicies are the ordinary ones, which add to what policies allow.
	NetworkPolicies []NetworkPolicy
	Pods            []Pod
	// Namespaces are the labels of the namespaces in the files.
	Namespaces map[string]map[string]string
	Services   []Service
	// Nodes are the labels of nodes.
	Nodes map[string]map[string]string
	// Skipped counts the objects of other kinds, by "apiVersion kind".
	Skipped  map[string]int
	findings []Finding
	known    map[string]place          // of policies
	spaces   map[string][]fqdn.Pattern // of policies, by namespace, made when they are asked for
	pods     map[policy.PodRef]bool    // of Pods
	cluster  *cluster                  // nil if files alone are checked
	byLog    []Unchecked               // the names that the log tells nothing about
}

// Policy is a policy and its position.
type Policy struct {
	v1alpha1.FQDNNetworkPolicy
	place place
}

// Pod is a pod, or what makes such pods.
type Pod struct {
	policy.Pod
	// Kind is Pod, or the kind whose template it is.
	Kind  string
	ports []policy.NamedPort // of its containers, those without a name too
}

// New returns manifests of no file.
func New() *Manifests {
	return &Manifests{
		Namespaces: map[string]map[string]string{}, Nodes: map[string]map[string]string{}, Skipped: map[string]int{},
		known: map[string]place{}, spaces: map[string][]fqdn.Pattern{}, pods: map[policy.PodRef]bool{},
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
	r := reader{add}
	for _, path := range paths {
		if path == "-" {
			if err := r.read("stdin", stdin); err != nil {
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
			err = r.folder(path, deep)
		default:
			err = r.file(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reader hands over the texts of files.
type reader struct {
	add func(name string, text []byte) error
}

func (r reader) folder(path string, deep bool) error {
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		switch hidden := at != path && strings.HasPrefix(entry.Name(), "."); {
		case err != nil:
			return err
		case entry.IsDir() && at != path && (hidden || !deep):
			return fs.SkipDir
		case entry.IsDir() || hidden:
			return nil
		}
		switch strings.ToLower(filepath.Ext(at)) {
		case ".yaml", ".yml", ".json":
			if info, err := os.Stat(at); err == nil && info.IsDir() {
				return nil // a link to one
			}
			return r.file(at)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read folder %s: %w", path, err)
	}
	return nil
}

func (r reader) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return r.read(path, f)
}

func (r reader) read(name string, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("%s is over %d bytes; split it", name, maxFile)
	}
	return r.add(name, text)
}

// Add reads one file's text. Its name says where findings are.
func (m *Manifests) Add(name string, text []byte) error {
	parts, err := manifest.Inspect(name, text)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	m.Files = append(m.Files, name)
	clear(m.spaces)
	for _, part := range parts {
		if part.Err != nil {
			m.find(Finding{File: name, Line: part.Line, Severity: Error, Reason: Unreadable, Message: oneLine(part.Err)})
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
	switch {
	case o.Err != nil:
		m.unreadable(at, o)
	case o.Policy != nil:
		p := Policy{*o.Policy, at}
		if first, taken := m.known[p.id()]; taken {
			if at.file != "" { // else the file is to replace it
				m.find(p.finding(Error, Duplicate, "metadata.name", fmt.Sprintf("a policy of that name is in %s; remove or rename one of them", first.ref("metadata.name"))))
			}
			return
		}
		m.known[p.id()] = at
		m.Policies = append(m.Policies, p)
	case o.ClusterPolicy != nil:
		m.clusterPolicy(ClusterPolicy{&cfqdnnp.Read(o.ClusterPolicy).Policy, o.ClusterPolicy, nil, at})
	case o.ClusterNetworkPolicy != nil:
		m.clusterPolicy(ClusterPolicy{&cnp.Read(o.ClusterNetworkPolicy).Policy, nil, o.ClusterNetworkPolicy, at})
	case o.NetworkPolicy != nil:
		m.networkPolicy(at, o.NetworkPolicy)
	case o.Pod != nil:
		m.pod(*o.Pod, "Pod", portsOfPod(o))
	case o.APIVersion == "v1" && o.Kind == "Service" && m.service(at, o):
	case o.APIVersion == "v1" && o.Kind == "Namespace":
		labels := map[string]string{corev1.LabelMetadataName: o.Name}
		for k, v := range o.Labels {
			if k != corev1.LabelMetadataName {
				labels[k] = v
			}
		}
		if m.Namespaces[o.Name] == nil || at.file != "" {
			m.Namespaces[o.Name] = labels
		}
	case o.APIVersion == "v1" && o.Kind == "Node" && o.Labels != nil:
		if m.Nodes[o.Name] == nil || at.file != "" {
			m.Nodes[o.Name] = o.Labels
		}
	default:
		if pod, ports, ok := template(o); ok {
			m.pod(pod, o.Kind, ports)
			return
		}
		m.Skipped[o.APIVersion+" "+o.Kind]++
	}
}

// unreadable reports the errors of an object: of a policy or NetworkPolicy each invalid
// field, else the decoder's message.
func (m *Manifests) unreadable(at place, o *manifest.Object) {
	f := Finding{File: at.file, Line: at.at(""), Severity: Error, Reason: Unreadable, Object: nameOf(o), Message: oneLine(o.Err)}
	if o.APIVersion == "v1" && o.Kind != "List" {
		f.Severity = Warning // the fields of a pod are the API server's to check
	}
	var odd []oddity
	switch o.GroupVersionKind() {
	case v1alpha1.GroupVersion().WithKind(v1alpha1.Kind):
		odd = at.oddities(policyType)
	case v1alpha1.GroupVersion().WithKind(v1alpha1.ClusterKind):
		odd = at.oddities(clusterPolicyType)
	case networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"):
		odd = at.oddities(networkPolicyType)
	}
	for _, each := range odd {
		f.Path, f.Line, f.Message = each.path, at.at(each.path), each.message
		m.find(f)
	}
	if len(odd) == 0 {
		m.find(f)
	}
}

// oneLine returns the text of an error without line ends.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// nameOf names an object that could not be read, as far as it can be told.
func nameOf(o *manifest.Object) string {
	if o.Name == "" || o.Kind == "" {
		return ""
	}
	kind, namespace := strings.ToLower(o.Kind), o.Namespace
	switch o.Kind {
	case v1alpha1.Kind:
		kind = "policy"
	case v1alpha1.ClusterKind:
		return cfqdnnp.Object(o.Name)
	case cnp.Kind:
		return cnp.Object(o.Name)
	}
	if namespace == "" {
		namespace = "default"
	}
	return kind + " " + namespace + "/" + o.Name
}

// pod takes a pod, without its addresses: they say nothing of names, and pods of
// several nodes and times may share them. Its kind tells it from others of its name.
func (m *Manifests) pod(p policy.Pod, kind string, ports []policy.NamedPort) {
	p.IPs, p.UID = nil, kind
	if !m.pods[p.PodRef] {
		m.pods[p.PodRef] = true
		m.Pods = append(m.Pods, Pod{p, kind, ports})
	}
}

func (p *Policy) id() string { return p.Namespace + "/" + p.Name }

// finding returns a finding at a field of the policy.
func (p *Policy) finding(severity Severity, reason, path, message string) Finding {
	return Finding{
		File: p.place.file, Line: p.place.at(path), Severity: severity, Reason: reason, Object: "policy " + p.id(), Path: path, Message: message,
	}
}
