package check

import (
	"fmt"
	"reflect"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// ClusterPolicy is a cluster policy and where it stands.
type ClusterPolicy struct {
	*v1alpha1.ClusterFQDNNetworkPolicy
	place place
}

var clusterPolicyType = reflect.TypeFor[v1alpha1.ClusterFQDNNetworkPolicy]()

// clusterPolicy takes a cluster policy of a file.
func (m *Manifests) clusterPolicy(at place, from *v1alpha1.ClusterFQDNNetworkPolicy) {
	p := ClusterPolicy{from, at}
	for i := range m.ClusterPolicies {
		if first := &m.ClusterPolicies[i]; first.Name == p.Name {
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
		for _, problem := range cfqdnnp.Validate(p.ClusterFQDNNetworkPolicy) {
			findings = append(findings, p.finding(Error, problem.Reason, problem.Path, problem.Message))
		}
		if !policy.TiersEnforced {
			findings = append(findings, p.finding(Warning, NotEnforced, "", "policies of this kind are not enforced yet, and answers of check leave them out"))
		}
	}
	return findings
}

// finding returns a finding at a field of the policy.
func (p *ClusterPolicy) finding(severity Severity, reason, path, message string) Finding {
	return Finding{
		File: p.place.file, Line: p.place.at(path), Severity: severity, Reason: reason, Object: cfqdnnp.Object(p.Name), Path: path, Message: message,
	}
}
