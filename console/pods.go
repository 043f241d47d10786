package console

import (
	"slices"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// PodRow is one pod of a node.
type PodRow struct {
	Node      string   `json:"node"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	// Enforcement is Enforce where a policy enforces rules for the pod, Audit where only
	// Audit policies select it, and "" where none does.
	Enforcement string `json:"enforcement,omitempty"`
	// Policies are the FQDNNetworkPolicies that select it.
	Policies []string `json:"policies,omitempty"`
	// NetworkPolicies are the ordinary ones that select it for egress; only of pods that
	// policies select.
	NetworkPolicies []string `json:"networkPolicies,omitempty"`
	Workload        string   `json:"workload,omitempty"`
	// Denied is how connections fail, Unmatched the reply to a question for a name that
	// no match covers; only of pods that are default-deny.
	Denied    string `json:"denied,omitempty"`
	Unmatched string `json:"unmatched,omitempty"`
	// Open counts grants, DeniedLately connections that were denied or would be.
	Open         int    `json:"open"`
	DeniedLately uint64 `json:"deniedLately"`
	// Notes are sentences on why policies do not hold, or not wholly.
	Notes []string `json:"notes,omitempty"`
}

// PodRows is the answer to PodsPath.
type PodRows struct {
	Pods []PodRow `json:"pods"`
}

// pods answers with the node's own pods that have not ended.
func (c *console) pods(r *request) error {
	namespace, name, err := r.scope()
	if err != nil {
		return err
	}
	snap := c.source.Snapshot()
	var chosen []*policy.Pod
	all := snap.Pods()
	for i := range all {
		if p := &all[i]; p.Local() && !p.Finished() && (namespace == "" || p.Namespace == namespace) && (name == "" || p.Name == name) {
			chosen = append(chosen, p)
		}
	}
	if name != "" && len(chosen) == 0 {
		if _, err := c.local(namespace, name); err != nil {
			return err
		}
	}
	trouble := c.trouble()
	return r.writeRows("pods", func(yield func(any) bool) {
		for _, p := range chosen {
			row := c.podRow(p, snap.ViewOf(p.PodRef))
			row.Notes = trouble[p.PodRef]
			if !yield(row) {
				return
			}
		}
	})
}

func (c *console) podRow(p *policy.Pod, v *policy.View) PodRow {
	row := PodRow{Node: c.source.Node(), Namespace: p.Namespace, Name: p.Name, UID: p.UID, Workload: p.Workload()}
	for _, a := range p.IPs {
		row.IPs = append(row.IPs, a.String())
	}
	if v == nil {
		return row
	}
	row.Open = len(c.open(p.PodRef))
	row.NetworkPolicies = v.NetworkPolicies
	row.Policies, row.Enforcement = v.Policies, string(v1alpha1.EnforcementAudit)
	if v.InForce() {
		row.Enforcement = string(v1alpha1.EnforcementEnforce)
	}
	if v.Enforced {
		row.Denied, row.Unmatched = v.Denied.String(), v.Unmatched.String()
	}
	for _, f := range c.source.Denied(p.PodRef) {
		row.DeniedLately += f.Count
	}
	return row
}

// trouble gathers for each pod what keeps policies from holding.
func (c *console) trouble() map[policy.PodRef][]string {
	out := map[policy.PodRef][]string{}
	add := func(ref policy.PodRef, text string) {
		if !slices.Contains(out[ref], text) {
			out[ref] = append(out[ref], text)
		}
	}
	for _, p := range c.source.Problems() {
		if p.Pod.Name != "" {
			add(p.Pod, p.Message)
		}
	}
	for ref, texts := range c.source.Trouble() {
		for _, t := range texts {
			add(ref, t)
		}
	}
	for _, texts := range out {
		slices.Sort(texts)
	}
	return out
}
