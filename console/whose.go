package console

import (
	"slices"
	"strings"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
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

// refOf reads "namespace/name" or "node NAME".
func refOf(text string) policy.PodRef {
	if node, is := strings.CutPrefix(text, policy.NodeRef("").String()); is && !strings.Contains(text, "/") {
		return policy.NodeRef(node)
	}
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

// clusterPolicy reads the object of a problem: the id of a cluster policy, and whether it is
// of the standard's kind.
func clusterPolicy(object string) (id string, standard, is bool) {
	if name, is := strings.CutPrefix(object, cfqdnnp.Object("")); is {
		return name, false, true
	}
	if name, is := strings.CutPrefix(object, cnp.Object("")); is {
		return cnp.ID(name), true, true
	}
	return "", false, false
}

// ofSeen returns problems, those of cluster policies that the caller may not read without
// their texts, and others without the names of such policies.
func (r *request) ofSeen(problems []policy.Problem) (out []policy.Problem) {
	for _, p := range problems {
		if _, standard, is := clusterPolicy(p.Object); is && !r.seesCluster(standard) {
			p = policy.Problem{Object: explain.Hidden(""), Reason: p.Reason, Message: "who may get the kind can see why"}
		}
		p.Policies = slices.DeleteFunc(slices.Clone(p.Policies), func(id string) bool { return hiddenPolicy(id, r.seesCluster) })
		out = append(out, p)
	}
	return out
}
