package serve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
)

// policies answers with the policies of a namespace, or of all, and the cluster policies that the
// caller may read. With selecting only those are asked for that select a pod or the node.
func (r *request) policies() error {
	namespace, _, err := r.scope()
	if err != nil {
		return err
	}
	rows := map[string]*console.PolicyRow{}
	for _, p := range r.policiesOf(namespace) {
		row := rowOf(p)
		rows[row.ID] = row
	}
	if snap := r.Snapshot; snap != nil {
		for _, v := range snap.Views {
			if v.Node == nil && (namespace == "" || v.Pod.Namespace == namespace) && seesPod(v.Pod.PodRef, r.sees) || v.Node != nil && namespace == "" && r.seesNodes() {
				selected(rows, v, r.seesCluster)
			}
		}
	}
	for _, p := range r.Problems {
		if row := rows[policyOf(p.Object)]; row != nil && p.Pod.Name == "" {
			row.Problems = append(row.Problems, console.PolicyProblem{Reason: p.Reason, Path: p.Path, Message: p.Message})
		}
	}
	selecting := r.URL.Query().Has("selecting")
	return r.answerRows("policies", func(yield func(any) bool) {
		for _, id := range slices.Sorted(maps.Keys(rows)) {
			if selecting && rows[id].Selected == 0 {
				continue
			}
			if !yield(rows[id]) {
				return
			}
		}
	})
}

// rowOf returns the row of a policy as it is written.
func rowOf(p *v1alpha1.FQDNNetworkPolicy) *console.PolicyRow {
	row := &console.PolicyRow{
		ID: p.Namespace + "/" + p.Name, Kind: v1alpha1.Kind, Namespace: p.Namespace, Name: p.Name, Tier: policy.Namespace.String(),
		Enforcement: cmp.Or(string(p.Spec.Enforcement), string(v1alpha1.EnforcementEnforce)),
	}
	for i := range p.Spec.Egress {
		rule := &p.Spec.Egress[i]
		serverName := explain.ServerNameOf(rule.ServerName == v1alpha1.ServerNameRequire)
		for j, m := range rule.Matches {
			row.Matches = append(row.Matches, console.PolicyMatch{Path: fmt.Sprintf("spec.egress[%d].matches[%d]", i, j), Match: ptr.Deref(m.Name, "") + ptr.Deref(m.Pattern, ""), ServerName: serverName})
		}
	}
	return row
}

// selected counts a pod or node for the policies that select it, and adds the cluster policies
// among them that may be read.
func selected(rows map[string]*console.PolicyRow, v *policy.View, sees func(id string) bool) {
	for _, id := range v.Policies {
		if row := rows[id]; row != nil {
			row.Selected++
		}
	}
	for _, id := range v.ClusterPolicies() {
		if row := rows[id]; row != nil {
			row.Selected++
		} else if sees(id) {
			rows[id] = clusterRow(id, v)
		}
	}
}

// clusterRow returns the row of a cluster policy as a view that it selects has it.
func clusterRow(id string, v *policy.View) *console.PolicyRow {
	row := &console.PolicyRow{ID: id, Kind: v1alpha1.ClusterKind, Name: id, Enforcement: string(v1alpha1.EnforcementEnforce), Selected: 1}
	if cnp.IsID(id) {
		row.Kind, row.Name = cnp.Kind, id[len(cnp.ID("")):]
	}
	if name, ofNodes := nnp.Name(id); ofNodes {
		row.Kind, row.Name = v1alpha1.NodeKind, name
	}
	rules := slices.Collect(v.Rules.Cluster())
	if v.Ingress != nil {
		rules = slices.AppendSeq(rules, v.Ingress.Cluster())
	}
	if v.Traffic != nil {
		rules = slices.Collect(v.Traffic.All())
	}
	for _, rule := range rules {
		if rule.Policy != id {
			continue
		}
		if row.Tier = rule.Tier.String(); v.Node != nil {
			row.Tier, row.Traffic = "", rule.Traffic.String()
		}
		if rule.Audit {
			row.Enforcement = string(v1alpha1.EnforcementAudit)
		}
		for _, m := range rule.Matches {
			row.Matches = append(row.Matches, console.PolicyMatch{Path: m.Path, Match: m.Pattern.String(), ServerName: explain.ServerNameOf(rule.ServerName)})
		}
	}
	return row
}

// policyOf returns the id of the policy that is the object of a problem, "" for other objects.
func policyOf(object string) string {
	if id, is := clusterPolicy(object); is {
		return id
	}
	if id, is := strings.CutPrefix(object, "policy "); is {
		return id
	}
	return ""
}
