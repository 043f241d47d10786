package console

import (
	"strings"

	"github.com/namegate/namegate/policy"
)

// namespaces returns the namespaces of a pod's reference: one, or all of the pods' that
// claim one address ("shop/a+pay/b").
func namespaces(ref policy.PodRef) []string {
	out := []string{ref.Namespace}
	for part := range strings.SplitSeq(ref.Name, "+") {
		if ns, _, other := strings.Cut(part, "/"); other {
			out = append(out, ns)
		}
	}
	return out
}

// refOf reads "namespace/name".
func refOf(text string) policy.PodRef {
	ns, name, _ := strings.Cut(text, "/")
	return policy.PodRef{Namespace: ns, Name: name}
}

// seesPod tells whether a caller who sees some namespaces may see a pod's rows.
func seesPod(ref policy.PodRef, sees func(namespace string) bool) bool {
	for _, ns := range namespaces(ref) {
		if !sees(ns) {
			return false
		}
	}
	return true
}
