package fqdnnp

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// TestSameSpecSeesEveryField changes one field after the other, whatever fields the type has.
func TestSameSpecSeesEveryField(t *testing.T) {
	name, port, seconds := "a.test", int32(1), int64(1)
	base := v1alpha1.FQDNNetworkPolicySpec{
		Egress:      []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: &name, Pattern: &name}}, Ports: []v1alpha1.Port{{Protocol: ptr(v1alpha1.ProtocolTCP), Port: &port, EndPort: &port}}}},
		Enforcement: "e", Denied: "d", DNS: v1alpha1.DNS{Unmatched: "u", Encrypted: "e", DNSLimits: v1alpha1.DNSLimits{Types: []v1alpha1.QueryType{"A"}, MaxLabels: &port, MaxQueryRate: &port}},
		TTL: v1alpha1.TTL{MinSeconds: &seconds, MaxSeconds: &seconds, GraceSeconds: &seconds, InUse: "i", ReuseSeconds: &seconds},
		PodSelector: metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}}},
		},
	}
	// change changes the n-th field, and returns how many come behind it, negative if it is there.
	var change func(v reflect.Value, n int) int
	change = func(v reflect.Value, n int) int {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				n = change(v.Field(i), n)
			}
		case reflect.Pointer:
			if v.IsNil() {
				t.Fatal("the test leaves a field out")
			}
			n = change(v.Elem(), n)
		case reflect.Slice:
			if v.Len() == 0 {
				t.Fatal("the test leaves a list out")
			}
			for i := range v.Len() {
				n = change(v.Index(i), n)
			}
		case reflect.Map:
			if n--; n == -1 {
				v.SetMapIndex(reflect.ValueOf("app"), reflect.ValueOf("other"))
			}
		case reflect.String:
			if v.String() == "" {
				t.Fatal("the test leaves a word out")
			}
			if n--; n == -1 {
				v.SetString("other")
			}
		default:
			if n--; n == -1 {
				v.SetInt(2)
			}
		}
		return n
	}
	fields := 0
	for ; ; fields++ {
		changed := base.DeepCopy()
		if change(reflect.ValueOf(changed).Elem(), fields) >= 0 {
			break
		}
		if SameSpec(&base, changed) || SameSpec(changed, &base) {
			t.Errorf("a change of field %d is not seen", fields)
		}
	}
	if fields < 15 {
		t.Errorf("%d fields", fields)
	}
}

// TestSameSpecSeesShapes changes and leaves out parts.
func TestSameSpecSeesShapes(t *testing.T) {
	type spec = v1alpha1.FQDNNetworkPolicySpec
	base := spec{Egress: []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: ptr("a.test")}, {Pattern: ptr("*.b.test")}}, Ports: []v1alpha1.Port{tcp(443)}}}}
	base.PodSelector.MatchLabels = map[string]string{"app": "web"}
	base.TTL = v1alpha1.TTL{MinSeconds: ptr(int64(1)), MaxSeconds: ptr(int64(2)), GraceSeconds: ptr(int64(3)), InUse: v1alpha1.InUseRenew, ReuseSeconds: ptr(int64(4))}
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
		func(s *spec) { s.TTL.InUse = v1alpha1.InUseExpire },
		func(s *spec) { s.TTL.ReuseSeconds = ptr(int64(9)) },
	} {
		changed := base.DeepCopy()
		change(changed)
		if SameSpec(&base, changed) || SameSpec(changed, &base) {
			t.Errorf("change %d is not seen", i)
		}
	}
}
