package check

import (
	"fmt"
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"
)

// NetworkPolicy is an ordinary NetworkPolicy and where it stands.
type NetworkPolicy struct {
	*networkingv1.NetworkPolicy
	place place
}

var networkPolicyType = reflect.TypeFor[networkingv1.NetworkPolicy]()

func (n *NetworkPolicy) id() string { return n.Namespace + "/" + n.Name }

// networkPolicy takes a NetworkPolicy of a file.
func (m *Manifests) networkPolicy(at place, from *networkingv1.NetworkPolicy) {
	n := NetworkPolicy{from, at}
	for i := range m.NetworkPolicies {
		if first := &m.NetworkPolicies[i]; first.Namespace == n.Namespace && first.Name == n.Name {
			if at.file != "" { // else the file is to replace it
				m.find(n.finding(Duplicate, "metadata.name", fmt.Sprintf("a NetworkPolicy of that name is in %s; remove or rename one of them", first.place.ref("metadata.name"))))
			}
			return
		}
	}
	m.NetworkPolicies = append(m.NetworkPolicies, n)
}

// finding returns a finding at a field of the NetworkPolicy.
func (n *NetworkPolicy) finding(reason, path, message string) Finding {
	return Finding{
		File: n.place.file, Line: n.place.at(path), Severity: Error, Reason: reason, Object: "networkpolicy " + n.id(), Path: path, Message: message,
	}
}
