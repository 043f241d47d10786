package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/peers"
)

// permissive finds NetworkPolicies that void the lists of policies, for the pods of the manifests
// and a made-up one of each policy. Policies with pods in common have one finding for these.
func (m *Manifests) permissive() (findings []Finding) {
	if len(m.NetworkPolicies) == 0 {
		return nil
	}
	in := m.input()
	in.Pods = unlike(in.Pods)
	for i := range m.Policies {
		p := &m.Policies[i]
		if selector, err := peers.NewSelector(&p.Spec.PodSelector); err == nil {
			labels, _ := peers.Sample(selector)
			in.Pods = append(in.Pods, policy.Pod{PodRef: policy.PodRef{Namespace: p.Namespace, Name: "of " + p.Name}, Labels: labels})
		}
	}
	snap := compile.New().Compile(in)
	said := map[string]bool{}
	for i := range in.Pods {
		v := snap.ViewOf(in.Pods[i].PodRef)
		by := explain.Permissive(v, snap)
		if by == nil {
			continue
		}
		ids, text := explain.Voided(v, by, fmt.Sprintf("NetworkPolicy %s %s%s", by.Policy, by.Path, at(m.ruleAt(by, by.Path))), in.Policies)
		var of *Policy // the first, of a file if one is
		for i := range m.Policies {
			if p := &m.Policies[i]; slices.Contains(ids, p.id()) && (of == nil || of.place.file == "" && p.place.file != "") {
				of = p
			}
		}
		if key := strings.Join(ids, " "); of != nil && !said[key] {
			said[key] = true
			findings = append(findings, of.finding(Warning, explain.PermissiveNetworkPolicy, "spec.podSelector", text))
		}
	}
	return findings
}

// at returns " at" and a position, "" for none.
func at(position string) string {
	if position == "" {
		return ""
	}
	return " at " + position
}
