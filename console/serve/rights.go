package serve

import (
	"net/http"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
)

// may returns the refusal of a caller who may not see a namespace, "" for all.
func (r *request) may(namespace string) error {
	sees, err := r.viewer.May(r.Context(), RowsOf(namespace))
	switch {
	case err != nil:
		return err
	case sees:
		return nil
	case namespace == "":
		return console.Refuse(http.StatusForbidden, "you may not see all namespaces: that takes the right to get fqdnnetworkpolicies.namegate.io in the whole cluster; name one that you may see with -n NAMESPACE")
	}
	return console.Refuse(http.StatusForbidden, "you may not see the namespace %s: that takes the right to get fqdnnetworkpolicies.namegate.io in it; ask your administrator for the ClusterRole namegate-viewer there", namespace)
}

// mayRead returns the refusal of a caller who may not read the cluster policies of the kind of a policy.
func (r *request) mayRead(id string) error {
	right, what := ClusterPolicies(id), "cluster policies"
	if _, ofNodes := nnp.Name(id); ofNodes {
		what = "policies for nodes"
	}
	sees, err := r.viewer.May(r.Context(), right)
	if err != nil || sees {
		return err
	}
	return console.Refuse(http.StatusForbidden, "you may not see %s: that takes the right to get %s; ask the administrator of the cluster's policies", what, right.Kind)
}

// sees tells whether the caller may see the rows of a namespace, false in doubt. Rights
// are asked once for each namespace: the API server may need some time.
func (r *request) sees(namespace string) bool { return r.has(RowsOf(namespace)) }

// seesCluster is sees for the cluster policies of the kind of a policy, by its id.
func (r *request) seesCluster(id string) bool { return r.has(ClusterPolicies(id)) }

// seesNodes is sees for the policies for nodes, and for what nodes do.
func (r *request) seesNodes() bool { return r.seesCluster(nnp.ID("")) }

func (r *request) has(of Right) bool {
	sees, known := r.seen[of]
	if !known {
		may, err := r.viewer.May(r.Context(), of)
		sees = err == nil && may
		r.seen[of] = sees
	}
	return sees
}

// decide calls pure with the rights that are known, none in doubt, and again while it looks at rights that are not
// known: these are asked for in between, so that pure never waits for the API server.
func (r *request) decide(pure func(has func(Right) bool)) {
	for wanted := []Right{{}}; len(wanted) > 0; {
		wanted = nil
		pure(func(of Right) bool {
			sees, known := r.seen[of]
			if !known {
				wanted = append(wanted, of)
			}
			return sees
		})
		for _, of := range wanted {
			r.has(of)
		}
	}
}

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
	ns, name, pod := strings.Cut(text, "/")
	if node, is := strings.CutPrefix(text, "node "); is && !pod {
		return policy.NodeRef(node)
	}
	return policy.PodRef{Namespace: ns, Name: name}
}

// seesPod tells whether a caller who sees some namespaces may see a pod's rows.
func seesPod(ref policy.PodRef, sees func(namespace string) bool) bool {
	return !slices.ContainsFunc(namespaces(ref), func(ns string) bool { return !sees(ns) })
}

// clusterPolicy reads the object of a problem: the id of a cluster policy.
func clusterPolicy(object string) (id string, is bool) {
	if name, is := strings.CutPrefix(object, cfqdnnp.Object("")); is {
		return name, true
	}
	if name, is := strings.CutPrefix(object, cnp.Object("")); is {
		return cnp.ID(name), true
	}
	if name, is := strings.CutPrefix(object, nnp.Object("")); is {
		return nnp.ID(name), true
	}
	return "", false
}

// hiddenPolicy tells whether an id is that of a cluster policy that may not be read.
func hiddenPolicy(id string, sees func(id string) bool) bool {
	return policy.OfCluster(id) && !sees(id)
}

// ofSeen returns problems, those of cluster policies that the caller may not read without
// their texts, and others without the names of such policies.
func (r *request) ofSeen(problems []policy.Problem) (out []policy.Problem) {
	for _, p := range problems {
		if id, is := clusterPolicy(p.Object); is && !r.seesCluster(id) {
			p = policy.Problem{Object: explain.Hidden(""), Reason: p.Reason, Message: "who may get the kind can see why"}
		}
		p.Policies = slices.DeleteFunc(slices.Clone(p.Policies), func(id string) bool { return hiddenPolicy(id, r.seesCluster) })
		out = append(out, p)
	}
	return out
}
