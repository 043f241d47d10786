package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// sortedOnce sorts list in place and returns it with each value once.
func sortedOnce[E comparable](list []E, compare func(a, b E) int) []E {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func compareRefs(a, b policy.ServiceRef) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
