package fqdnnp

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// TestSameSpecSeesEveryField changes one field after the other.
func TestSameSpecSeesEveryField(t *testing.T) {
	type spec = v1alpha1.FQDNNetworkPolicySpec
	base := spec{Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: ptr("a.test")}, {Pattern: ptr("*.b.test")}}, Ports: []v1alpha1.Port{tcp(443)}}}}
	base.PodSelector.MatchLabels = map[string]string{"app": "web"}
	base.TTL = v1alpha1.TTL{MinSeconds: ptr(int64(1)), MaxSeconds: ptr(int64(2)), GraceSeconds: ptr(int64(3))}
	base.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}}}
	if !SameSpec(&base, base.DeepCopy()) {
		t.Error("a copy is not the same")
	}
	for i, change := range []func(*spec){
		func(s *spec) { s.PodSelector.MatchLabels["app"] = "db" },
		func(s *spec) { s.PodSelector.MatchLabels["more"] = "x" },
		func(s *spec) { s.PodSelector.MatchExpressions[0].Key = "x" },
		func(s *spec) { s.PodSelector.MatchExpressions[0].Operator = "NotIn" },
		func(s *spec) { s.PodSelector.MatchExpressions[0].Values[0] = "x" },
		func(s *spec) { s.PodSelector.MatchExpressions = nil },
		func(s *spec) { s.Egress[0].Matches[0].Name = ptr("b.test") },
		func(s *spec) { s.Egress[0].Matches[0].Pattern = ptr("b.test") },
		func(s *spec) { s.Egress[0].Matches[1].Pattern = nil },
		func(s *spec) { s.Egress[0].Matches = s.Egress[0].Matches[:1] },
		func(s *spec) { s.Egress[0].Ports[0].Port = nil },
		func(s *spec) { s.Egress[0].Ports[0].EndPort = ptr(int32(500)) },
		func(s *spec) { s.Egress[0].Ports[0].Protocol = ptr(v1alpha1.ProtocolUDP) },
		func(s *spec) { s.Egress[0].Ports = nil },
		func(s *spec) { s.Egress = append(s.Egress, v1alpha1.EgressRule{}) },
		func(s *spec) { s.Egress = nil },
		func(s *spec) { s.Enforcement = v1alpha1.EnforcementAudit },
		func(s *spec) { s.Denied = v1alpha1.DeniedDrop },
		func(s *spec) { s.DNS.Unmatched = v1alpha1.UnmatchedRefuse },
		func(s *spec) { s.TTL.MinSeconds = nil },
		func(s *spec) { s.TTL.MaxSeconds = ptr(int64(9)) },
		func(s *spec) { s.TTL.GraceSeconds = ptr(int64(9)) },
	} {
		changed := base.DeepCopy()
		change(changed)
		if SameSpec(&base, changed) || SameSpec(changed, &base) {
			t.Errorf("change %d is not seen", i)
		}
	}
}
