package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// PermissiveNetworkPolicy is the finding that a NetworkPolicy opens every address to pods for which policies list names.
const PermissiveNetworkPolicy = "PermissiveNetworkPolicy"

// Outside stand for all addresses outside the cluster, by family: well-known resolvers, that a
// list of networks without use in the Internet has not.
var Outside = [][]netip.Addr{
	{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("208.67.222.222")},
	{netip.MustParseAddr("2606:4700:4700::1111"), netip.MustParseAddr("2001:4860:4860::8888")},
}

// Permissive returns the rule of a NetworkPolicy by which the pod of a view reaches every address
// outside, of a family, on a port of its names; nil for none. The names close nothing there.
func Permissive(v *policy.View, in *policy.Snapshot) *policy.Rule {
	if v == nil || len(v.NetworkPolicies) == 0 {
		return nil
	}
	for _, r := range slices.Concat(v.Rules.Namespace, v.Rules.NamespaceChecked) {
		if r.Peer.Kind != policy.PeerNames || r.Audit && v.InForce() {
			continue
		}
		ports := r.Ports.Ranges()
		if r.Ports.Contains(policy.TCP, likelyPort) {
			ports = append([]policy.PortRange{{Protocol: policy.TCP, First: likelyPort}}, ports...)
		}
		for _, p := range ports {
			for _, family := range Outside {
				if by := opens(v, in, family, p); by != nil {
					return by
				}
			}
		}
	}
	return nil
}

// opens returns the rule of a NetworkPolicy that opens the first of some addresses, if such rules
// open all of them.
func opens(v *policy.View, in *policy.Snapshot, to []netip.Addr, p policy.PortRange) (first *policy.Rule) {
	for _, a := range to {
		at := netip.AddrPortFrom(a, max(p.First, 1))
		allowed, by := policy.Evaluate(v, in, &policy.Flow{Protocol: p.Protocol, Dialled: at, Reached: at, Would: !v.InForce()})
		if !allowed || by == nil || by.Tier != policy.Namespace {
			return nil
		}
		if first == nil {
			first = by
		}
	}
	return first
}

// Voided says what a rule of Permissive does to the names of the policies that select the pod of
// the view, and how to restore their list. at is where the rule is; all has the policies, of which
// ids are the pod's.
func Voided(v *policy.View, by *policy.Rule, at string, all []*v1alpha1.FQDNNetworkPolicy) (ids []string, text string) {
	var others []string
	var policies []v1alpha1.FQDNNetworkPolicy // whose names count
	for _, p := range all {
		id := p.Namespace + "/" + p.Name
		if slices.Contains(v.Policies, id) && (p.Spec.Enforcement != v1alpha1.EnforcementAudit || !v.InForce()) {
			ids, policies = append(ids, id), append(policies, *p)
		}
	}
	for _, r := range v.Rules.Namespace {
		if r.Peer.Kind != policy.PeerNames && r.Policy != by.Policy && !slices.Contains(others, r.Policy) {
			others = append(others, r.Policy)
		}
	}
	text = fmt.Sprintf("%s opens every address outside on %s to pods of %s, so that the names there close nothing; ", at, by.Ports, strings.Join(ids, ", "))
	var manifest []byte
	p, ok := suggest.Restore(v, policies)
	if made, err := suggest.YAML(&p); ok && err == nil {
		manifest, err = yaml.YAMLToJSON(made)
		ok = err == nil
	}
	if !ok {
		return ids, text + "to restore the list, write a ClusterFQDNNetworkPolicy of tier Admin that accepts the names and denies the rest"
	}
	text += "to restore the list, correct the NetworkPolicy, or let an administrator of the cluster apply: " + string(manifest)
	if len(others) > 0 {
		text += "; before its last rule add what NetworkPolicies " + strings.Join(others, ", ") + " are to open"
	}
	return ids, text
}

// permissive says that a NetworkPolicy voids the names of the pod.
func (in *inquiry) permissive() {
	if by := Permissive(in.f.View, in.f.Snapshot); by != nil && !in.f.Unresolved { // Lint has it as a finding
		_, text := Voided(in.f.View, by, "NetworkPolicy "+by.Policy+" ("+by.Path+")", in.f.Policies)
		in.note("%s: %s", PermissiveNetworkPolicy, text)
	}
}
