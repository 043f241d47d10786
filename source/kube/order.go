package kube

import (
	"cmp"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// sortedOnce sorts list in place and returns it with each value once.
func sortedOnce[E comparable](list []E, compare func(a, b E) int) []E {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

func compareRefs(a, b policy.ServiceRef) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
