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
func (l *linter) permissive() {
	in := l.input(l.Options)
	if len(in.NetworkPolicies) == 0 {
		return
	}
	in.Pods = unlike(in.Pods)
	for _, p := range l.Policies {
		if p.own != nil && p.Pods != nil {
			labels, _ := peers.Sample(p.Pods)
			in.Pods = append(in.Pods, policy.Pod{PodRef: policy.PodRef{Namespace: p.namespace, Name: "of " + p.own.Name}, Labels: labels})
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
		ids, text := explain.Voided(v, by, fmt.Sprintf("NetworkPolicy %s %s%s", by.Policy, by.Path, l.ruleAt(by, by.Path)), in.Policies)
		var of *Policy // the first, of a file if one is
		for _, p := range l.Policies {
			if p.own != nil && slices.Contains(ids, p.ID) && (of == nil || of.place.file == "" && p.place.file != "") {
				of = p
			}
		}
		if key := strings.Join(ids, " "); of != nil && !said[key] {
			said[key] = true
			l.warn(of, explain.PermissiveNetworkPolicy, of.subject(), text)
		}
	}
}
