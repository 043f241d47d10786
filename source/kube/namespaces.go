package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// namespaceEntry has the used fields of a namespace.
type namespaceEntry struct {
	name   string
	labels map[string]string
}

func readNamespace(object any, before *namespaceEntry) *namespaceEntry {
	n, ok := object.(*corev1.Namespace)
	if !ok {
		return nil
	}
	e := &namespaceEntry{name: n.Name, labels: n.Labels}
	if before != nil {
		e.labels = shared(before.labels, e.labels)
	}
	return e
}

func listNamespaces(entries []*namespaceEntry) map[string]map[string]string {
	all := make(map[string]map[string]string, len(entries))
	for _, e := range entries {
		all[e.name] = e.labels
	}
	return all
}

// shared returns before if it says the same as after.
func shared(before, after map[string]string) map[string]string {
	if maps.Equal(before, after) {
		return before
	}
	return after
}
