package console

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// PolicyRow is a policy with names: an FQDNNetworkPolicy, or a cluster policy that selects a pod of
// the node or the node itself.
type PolicyRow struct {
	// ID is how lines of the audit log name it: "namespace/name", of a cluster policy its name, and
	// "clusternetworkpolicy:" and the name of a ClusterNetworkPolicy.
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace,omitempty"` // "" of cluster policies
	Name        string `json:"name"`
	Tier        string `json:"tier"`
	Enforcement string `json:"enforcement"` // as it is in force on the node
	// Selected counts pods of the node that the caller may see and, of cluster policies, the node.
	Selected int             `json:"selected"`
	Matches  []PolicyMatch   `json:"matches,omitempty"`
	Problems []PolicyProblem `json:"problems,omitempty"`
}

// PolicyMatch is a name or pattern of a policy.
type PolicyMatch struct {
	Path  string `json:"path"` // as lines have it, "spec.egress[0].matches[1]"
	Match string `json:"match"`
}

// PolicyProblem is what an agent found wrong with a policy.
type PolicyProblem struct {
	Reason  string `json:"reason"` // of policy.Problem
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// PolicyRows is the answer to PoliciesPath, sorted by ID.
type PolicyRows struct {
	Policies []PolicyRow `json:"policies"`
}

// policies answers with the policies of a namespace, or of all, and the cluster policies that the
// caller may read. With selecting only those are asked for that select a pod or the node.
func (c *console) policies(r *request) error {
	namespace, _, err := r.scope()
	if err != nil {
		return err
	}
	rows := map[string]*PolicyRow{}
	for _, p := range c.source.Policies(namespace) {
		row := rowOf(&p)
		rows[row.ID] = row
	}
	if snap := c.source.Snapshot(); snap != nil {
		for _, v := range snap.Views {
			if v.Node == nil && (namespace == "" || v.Pod.Namespace == namespace) && seesPod(v.Pod.PodRef, r.sees) || v.Node != nil && namespace == "" && r.seesCluster(false) {
				selected(rows, v, r.seesCluster)
			}
		}
	}
	for _, p := range c.source.Problems() {
		if row := rows[policyOf(p.Object)]; row != nil && p.Pod.Name == "" {
			row.Problems = append(row.Problems, PolicyProblem{p.Reason, p.Path, p.Message})
		}
	}
	selecting := r.URL.Query().Has("selecting")
	return r.writeRows("policies", func(yield func(any) bool) {
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
func rowOf(p *v1alpha1.FQDNNetworkPolicy) *PolicyRow {
	row := &PolicyRow{
		ID: p.Namespace + "/" + p.Name, Kind: v1alpha1.Kind, Namespace: p.Namespace, Name: p.Name, Tier: policy.Namespace.String(),
		Enforcement: cmp.Or(string(p.Spec.Enforcement), string(v1alpha1.EnforcementEnforce)),
	}
	for i := range p.Spec.Egress {
		for j, m := range p.Spec.Egress[i].Matches {
			match := PolicyMatch{Path: "spec.egress[" + strconv.Itoa(i) + "].matches[" + strconv.Itoa(j) + "]"}
			for _, text := range []*string{m.Name, m.Pattern} {
				if text != nil {
					match.Match = *text
				}
			}
			row.Matches = append(row.Matches, match)
		}
	}
	return row
}

// selected counts a pod or node for the policies that select it, and adds the cluster policies
// among them that may be read.
func selected(rows map[string]*PolicyRow, v *policy.View, sees func(standard bool) bool) {
	for _, id := range v.Policies {
		if row := rows[id]; row != nil {
			row.Selected++
		}
	}
	for _, id := range v.ClusterPolicies() {
		if row := rows[id]; row != nil {
			row.Selected++
		} else if sees(cnp.IsID(id)) {
			rows[id] = clusterRow(id, v)
		}
	}
}

// clusterRow returns the row of a cluster policy as a view that it selects has it.
func clusterRow(id string, v *policy.View) *PolicyRow {
	row := &PolicyRow{ID: id, Kind: v1alpha1.ClusterKind, Name: id, Enforcement: string(v1alpha1.EnforcementEnforce), Selected: 1}
	if cnp.IsID(id) {
		row.Kind, row.Name = cnp.Kind, id[len(cnp.ID("")):]
	}
	for rule := range v.Rules.Cluster() {
		if rule.Policy != id {
			continue
		}
		row.Tier = rule.Tier.String()
		if rule.Audit {
			row.Enforcement = string(v1alpha1.EnforcementAudit)
		}
		for _, m := range rule.Matches {
			row.Matches = append(row.Matches, PolicyMatch{m.Path, m.Pattern.String()})
		}
	}
	return row
}

// policyOf returns the id of the policy that is the object of a problem, "" for other objects.
func policyOf(object string) string {
	if id, _, is := clusterPolicy(object); is {
		return id
	}
	id, is := strings.CutPrefix(object, "policy ")
	if !is {
		return ""
	}
	return id
}
