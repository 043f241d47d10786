package serve

import (
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// pods answers with the node's own pods that have not ended.
func (r *request) pods() error {
	namespace, name, err := r.scope()
	if err != nil {
		return err
	}
	snap := r.Snapshot
	var chosen []*policy.Pod
	all := snap.Pods()
	for i := range all {
		if p := &all[i]; p.Local() && !p.Finished() && (namespace == "" || p.Namespace == namespace) && (name == "" || p.Name == name) {
			chosen = append(chosen, p)
		}
	}
	if name != "" && len(chosen) == 0 {
		if _, err := r.local(namespace, name); err != nil {
			return err
		}
	}
	trouble := r.trouble()
	return r.answerRows("pods", func(yield func(any) bool) {
		for _, p := range chosen {
			row := r.podRow(p, snap.ViewOf(p.PodRef))
			row.Notes = trouble[p.PodRef]
			if !yield(row) {
				return
			}
		}
	})
}

func (r *request) podRow(p *policy.Pod, v *policy.View) console.PodRow {
	row := console.PodRow{Node: r.Node, Namespace: p.Namespace, Name: p.Name, UID: p.UID, Workload: p.Workload()}
	for _, a := range p.IPs {
		row.IPs = append(row.IPs, a.String())
	}
	if v == nil {
		return row
	}
	row.Open = len(r.open(p.PodRef))
	row.NetworkPolicies = v.NetworkPolicies
	if v.Ingress != nil && len(v.Ingress.NetworkPolicies) > 0 && p.PodRef != p.Orphan() {
		row.NetworkPolicies = slices.Concat(v.NetworkPolicies, v.Ingress.NetworkPolicies)
		slices.Sort(row.NetworkPolicies)
		row.NetworkPolicies = slices.Compact(row.NetworkPolicies)
	}
	row.Policies, row.Enforcement = v.Policies, string(v1alpha1.EnforcementEnforce)
	if !v.InForce() && v.Ingress == nil && (len(v.Policies) > 0 || v.Ordered()) {
		row.Enforcement = string(v1alpha1.EnforcementAudit)
	}
	if v.Enforced {
		row.Denied, row.Unmatched = v.Denied.String(), v.Unmatched.String()
	}
	for _, f := range r.Live.Denied(p.PodRef) {
		row.DeniedLately += f.Count
	}
	return row
}

// trouble gathers for each pod what keeps policies from holding.
func (r *request) trouble() map[policy.PodRef][]string {
	out := map[policy.PodRef][]string{}
	add := func(ref policy.PodRef, text string) {
		if !slices.Contains(out[ref], text) {
			out[ref] = append(out[ref], text)
		}
	}
	for _, p := range r.Problems {
		if p.Pod.Name != "" {
			add(p.Pod, p.Message)
		}
	}
	for ref, texts := range r.Trouble() {
		for _, t := range texts {
			add(ref, t)
		}
	}
	for _, texts := range out {
		slices.Sort(texts)
	}
	return out
}
