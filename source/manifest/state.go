package manifest

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// State is the content of a folder at one moment. The receiver may keep it and must not
// change it: later states share parts of it.
type State struct {
	Input compile.Input
	// FileErrors are the broken files, sorted by name. The last whole content of such a
	// file is still part of Input.
	FileErrors []FileError
	// Problems are the objects that are left out.
	Problems []policy.Problem
}

// FileError is a file, or the folder, that cannot be read.
type FileError struct {
	File   string // its path
	Reason string // with the document and line where they are known
	// Since is when the file was first found broken.
	Since time.Time
}

// Error returns file and reason.
func (e FileError) Error() string { return e.File + ": " + e.Reason }

// The reasons of the problems that a State reports.
const (
	// ReasonIgnored: the object is of a kind that is not read from files.
	ReasonIgnored = "Ignored"
	// ReasonDuplicate: an earlier object has the same name and counts.
	ReasonDuplicate = "Duplicate"
)

// state puts the files together, in the order of their names. The first of two
// objects of one name counts.
func (f *folder) state() State {
	s := State{Input: compile.Input{Namespaces: map[string]map[string]string{}}}
	if f.err != nil {
		s.FileErrors = append(s.FileErrors, *f.err)
	}
	seen := map[string]string{}
	for _, file := range f.sorted() {
		if file.err != nil {
			s.FileErrors = append(s.FileErrors, *file.err)
		}
		for i := range file.objects {
			o := &file.objects[i]
			at := file.path + ": " + o.at
			switch first, taken := seen[o.key]; {
			case o.ignored != "":
				s.Problems = append(s.Problems, policy.Problem{Object: "file " + file.path, Reason: ReasonIgnored, Path: o.at,
					Message: o.ignored})
			case taken:
				s.Problems = append(s.Problems, policy.Problem{Object: o.key, Reason: ReasonDuplicate, Path: at,
					Message: "the one in " + first + " counts; remove or rename this one"})
			default:
				seen[o.key] = at
				s.add(o)
			}
		}
	}
	for _, p := range s.Input.Policies {
		s.imply(p.Namespace)
	}
	for _, p := range s.Input.NetworkPolicies {
		s.imply(p.Namespace)
	}
	for i := range s.Input.Pods {
		s.imply(s.Input.Pods[i].Namespace)
	}
	return s
}

func (s *State) add(o *Object) {
	switch {
	case o.Policy != nil:
		s.Input.Policies = append(s.Input.Policies, o.Policy)
	case o.ClusterPolicy != nil:
		s.Input.ClusterPolicies = append(s.Input.ClusterPolicies, o.ClusterPolicy)
	case o.NodePolicy != nil:
		s.Input.NodePolicies = append(s.Input.NodePolicies, o.NodePolicy)
	case o.ClusterNetworkPolicy != nil:
		s.Input.ClusterNetworkPolicies = append(s.Input.ClusterNetworkPolicies, o.ClusterNetworkPolicy)
	case o.node != nil:
		s.Input.Nodes = append(s.Input.Nodes, o.node)
	case o.NetworkPolicy != nil:
		s.Input.NetworkPolicies = append(s.Input.NetworkPolicies, o.NetworkPolicy)
	case o.Pod != nil:
		s.Input.Pods = append(s.Input.Pods, *o.Pod)
	default: // a namespace
		labels := maps.Clone(o.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelMetadataName] = o.Name
		s.Input.Namespaces[o.Name] = labels
	}
}

// imply gives a namespace without a manifest the label that every namespace has.
func (s *State) imply(name string) {
	if s.Input.Namespaces[name] == nil {
		s.Input.Namespaces[name] = map[string]string{corev1.LabelMetadataName: name}
	}
}
