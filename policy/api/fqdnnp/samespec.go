package fqdnnp

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// SameSpec tells whether two specs say the same. It compares contents and not
// generations: files carry generations that mean nothing. Shared slices make it
// quick, because most policies come unchanged from the source's own store.
func SameSpec(a, b *v1alpha1.FQDNNetworkPolicySpec) bool {
	return a.Enforcement == b.Enforcement && a.Denied == b.Denied && a.DNS.Unmatched == b.DNS.Unmatched && a.DNS.Encrypted == b.DNS.Encrypted && sameLimits(&a.DNS.DNSLimits, &b.DNS.DNSLimits) &&
		samePointee(a.TTL.MinSeconds, b.TTL.MinSeconds) &&
		samePointee(a.TTL.MaxSeconds, b.TTL.MaxSeconds) &&
		samePointee(a.TTL.GraceSeconds, b.TTL.GraceSeconds) &&
		samePointee(a.TTL.ReuseSeconds, b.TTL.ReuseSeconds) && a.TTL.InUse == b.TTL.InUse &&
		sameMap(a.PodSelector.MatchLabels, b.PodSelector.MatchLabels) &&
		sameList(a.PodSelector.MatchExpressions, b.PodSelector.MatchExpressions, sameRequirement) &&
		sameList(a.Egress, b.Egress, sameRule)
}

func sameLimits(a, b *v1alpha1.DNSLimits) bool {
	return slices.Equal(a.Types, b.Types) && (a.Types == nil) == (b.Types == nil) &&
		samePointee(a.MaxLabels, b.MaxLabels) && samePointee(a.MaxQueryRate, b.MaxQueryRate)
}

func sameRule(a, b v1alpha1.EgressRule) bool {
	return sameList(a.Matches, b.Matches, sameMatch) && sameList(a.Ports, b.Ports, samePort)
}

func sameMatch(a, b v1alpha1.Match) bool {
	return samePointee(a.Name, b.Name) && samePointee(a.Pattern, b.Pattern)
}

func samePort(a, b v1alpha1.Port) bool {
	return samePointee(a.Protocol, b.Protocol) && samePointee(a.Port, b.Port) && samePointee(a.EndPort, b.EndPort)
}

func sameRequirement(a, b metav1.LabelSelectorRequirement) bool {
	return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
}

func sameList[E any](a, b []E, same func(E, E) bool) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, same)
}

// sameMap is maps.Equal, quicker for one map than walking through it.
func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() || maps.Equal(a, b)
}

func samePointee[E comparable](a, b *E) bool {
	return a == b || a != nil && b != nil && *a == *b
}
