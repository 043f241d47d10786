package check

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
)

// ClusterPolicy is a cluster policy, of one of both kinds, and where it stands.
type ClusterPolicy struct {
	ours     *v1alpha1.ClusterFQDNNetworkPolicy
	standard *unstructured.Unstructured
	object   string // as problems name it
	place    place
}

var clusterPolicyType = reflect.TypeFor[v1alpha1.ClusterFQDNNetworkPolicy]()

// clusterPolicy takes a cluster policy of a file.
func (m *Manifests) clusterPolicy(p ClusterPolicy) {
	for i := range m.ClusterPolicies {
		if first := &m.ClusterPolicies[i]; first.object == p.object {
			m.find(p.finding(Error, Duplicate, "metadata.name", fmt.Sprintf("a policy of that name is in %s:%d; remove or rename one of them",
				first.place.file, first.place.at("metadata.name"))))
			return
		}
	}
	m.ClusterPolicies = append(m.ClusterPolicies, p)
}

// clusterPolicies finds what is wrong with each cluster policy.
func (m *Manifests) clusterPolicies() (findings []Finding) {
	for i := range m.ClusterPolicies {
		p := &m.ClusterPolicies[i]
		for _, problem := range p.problems() {
			findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
		}
		if p.standard != nil {
			if read := cnp.Read(p.standard); read.Ingress > 0 {
				findings = append(findings, p.finding(Warning, NotEnforced, "spec.ingress", read.IngressText()))
			}
		}
		if !policy.TiersEnforced {
			findings = append(findings, p.finding(Warning, NotEnforced, "", "policies of this kind are not enforced yet, and answers of check leave them out"))
		}
	}
	return findings
}

// problems returns what is wrong with the policy alone.
func (p *ClusterPolicy) problems() []policy.Problem {
	if p.standard != nil {
		return cnp.Read(p.standard).Problems
	}
	return cfqdnnp.Validate(p.ours)
}

// finding returns a finding at a field of the policy.
func (p *ClusterPolicy) finding(severity Severity, reason, path, message string) Finding {
	return Finding{
		File: p.place.file, Line: p.place.at(path), Severity: severity, Reason: reason, Object: p.object, Path: path, Message: message,
	}
}
