package check

import (
	"fmt"
	"reflect"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
)

// NetworkPolicy is an ordinary NetworkPolicy and where it stands.
type NetworkPolicy struct {
	*networkingv1.NetworkPolicy
	place place
}

var networkPolicyType = reflect.TypeFor[networkingv1.NetworkPolicy]()

func (n *NetworkPolicy) id() string { return n.Namespace + "/" + n.Name }

// networkPolicy takes a NetworkPolicy of a file.
func (m *Manifests) networkPolicy(at place, from *networkingv1.NetworkPolicy) {
	n := NetworkPolicy{from, at}
	for i := range m.NetworkPolicies {
		if first := &m.NetworkPolicies[i]; first.Namespace == n.Namespace && first.Name == n.Name {
			if at.file != "" { // else the file is to replace it
				m.find(n.finding(Duplicate, "metadata.name", fmt.Sprintf("a NetworkPolicy of that name is in %s; remove or rename one of them", first.place.ref("metadata.name"))))
			}
			return
		}
	}
	m.NetworkPolicies = append(m.NetworkPolicies, n)
}

// finding returns a finding at a field of the NetworkPolicy.
func (n *NetworkPolicy) finding(reason, path, message string) Finding {
	return Finding{
		File: n.place.file, Line: n.place.at(path), Severity: Error, Reason: reason, Object: "networkpolicy " + n.id(), Path: path, Message: message,
	}
}

// reaches returns the rules of NetworkPolicies by which the pod may reach some addresses
// as it is asked for.
func (m *Manifests) reaches(steps []policy.Step) (some []string) {
	for _, s := range steps {
		if at := m.ruleAt(s.Rule); s.Asked && s.Rule.Tier == policy.Namespace && s.Rule.Action == policy.Accept && s.Rule.Peer.Kind != policy.PeerNames && (len(some) == 0 || some[len(some)-1] != at) {
			some = append(some, at)
		}
	}
	return some
}

// ruleAt says where a rule of a NetworkPolicy or of a cluster policy stands, or one that denies.
func (m *Manifests) ruleAt(r *policy.Rule) string {
	if r.Tier != policy.Namespace {
		text := fmt.Sprintf("%s policy %s %s", r.Tier, r.Policy, r.Path)
		for i := range m.ClusterPolicies {
			if p := &m.ClusterPolicies[i]; p.ID == r.Policy {
				return text + p.place.where(r.Path)
			}
		}
		return text
	}
	if at := m.known[r.Policy]; r.Action == policy.Deny {
		return r.Policy + " " + r.Path + at.where(r.Path)
	}
	text := fmt.Sprintf("NetworkPolicy %s %s", r.Policy, r.Path)
	for i := range m.NetworkPolicies {
		if n := &m.NetworkPolicies[i]; n.id() == r.Policy {
			return text + n.place.where(r.Path)
		}
	}
	return text
}

// orByAddress says that rules may allow all the same what no match does.
func orByAddress(rules []string) string {
	const most = 3 // more would not be read
	more := ""
	switch {
	case len(rules) == 0:
		return ""
	case len(rules) > most:
		more, rules = fmt.Sprintf(" and %d more", len(rules)-most), rules[:most]
	}
	return "; what it leads to may be reached by " + strings.Join(rules, ", ") + more
}
