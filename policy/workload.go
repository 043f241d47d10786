package policy

import (
	"maps"
	"slices"
	"strings"
)

// single are labels that Kubernetes gives to tell the pods, revisions or runs of one
// workload apart. Source: https://kubernetes.io/docs/reference/labels-annotations-taints/.
var single = map[string]bool{
	"pod-template-hash":                               true,
	"controller-revision-hash":                        true,
	"pod-template-generation":                         true,
	"statefulset.kubernetes.io/pod-name":              true,
	"apps.kubernetes.io/pod-index":                    true,
	"controller-uid":                                  true,
	"job-name":                                        true,
	"batch.kubernetes.io/controller-uid":              true,
	"batch.kubernetes.io/job-name":                    true,
	"batch.kubernetes.io/job-completion-index":        true,
	"batch.kubernetes.io/cronjob-scheduled-timestamp": true,
}

// Workload returns the pod's labels as a selector, sorted by key, without labels that
// distinguish the pods of one workload: "app=cart,tier=front", "" for none.
func (p *Pod) Workload() string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if !single[key] {
			terms = append(terms, key+"="+p.Labels[key])
		}
	}
	return strings.Join(terms, ",")
}
