package check

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/ordered"
)

// ClusterPolicy is a cluster policy of either kind and where it stands.
type ClusterPolicy struct {
	*ordered.Policy
	// One of these is what it was read from.
	ours     *v1alpha1.ClusterFQDNNetworkPolicy
	standard *unstructured.Unstructured
	place    place
}

var clusterPolicyType = reflect.TypeFor[v1alpha1.ClusterFQDNNetworkPolicy]()

// clusterPolicy takes a cluster policy of a file.
func (m *Manifests) clusterPolicy(p ClusterPolicy) {
	for i := range m.ClusterPolicies {
		if first := &m.ClusterPolicies[i]; first.ID == p.ID {
			if p.place.file != "" { // else the file is to replace it
				m.find(p.finding(Error, Duplicate, "metadata.name", fmt.Sprintf("a policy of that name is in %s; remove or rename one of them", first.place.ref("metadata.name"))))
			}
			return
		}
	}
	m.ClusterPolicies = append(m.ClusterPolicies, p)
}

// clusterPolicies finds what is wrong with each cluster policy.
func (m *Manifests) clusterPolicies(o Options) (findings []Finding) {
	denied := m.denied()
	for i := range m.ClusterPolicies {
		p := &m.ClusterPolicies[i]
		for _, problem := range p.Problems {
			findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
		}
		if p.standard != nil {
			if read := cnp.Read(p.standard); read.Ingress > 0 {
				findings = append(findings, p.finding(Warning, cnp.ReasonIngressNotEnforced, "spec.ingress", read.IngressText()))
			}
		}
		findings = append(findings, denied.matches(p, o)...)
		findings = append(findings, p.nodes()...)
	}
	findings = append(findings, m.denyLists(o)...)
	return append(findings, m.ties()...)
}

// finding returns a finding at a field of the policy.
func (p *ClusterPolicy) finding(severity Severity, reason, path, message string) Finding {
	return Finding{
		File: p.place.file, Line: p.place.at(path), Severity: severity, Reason: reason, Object: p.Object, Path: path, Message: message,
	}
}
