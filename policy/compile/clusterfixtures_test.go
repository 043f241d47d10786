package compile

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// aCluster reads the spec of a cluster policy.
func aCluster(t testing.TB, name, spec string) *v1alpha1.ClusterFQDNNetworkPolicy {
	t.Helper()
	p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec), spec)
	return p
}

// orderedText returns a rule of any tier in one line.
func orderedText(r *policy.Rule) string {
	text := fmt.Sprintf("%v %s %s %v", r.Tier, r.Policy, r.Path, r.Action)
	if r.Broken {
		text += " broken"
	}
	if r.Audit {
		text += " audit"
	}
	for _, m := range r.Matches {
		text += " " + m.Pattern.String()
	}
	if r.Peer.Kind != policy.PeerNames {
		text += fmt.Sprintf(" %d %s", r.Peer.Kind, r.Peer.Key)
	}
	return text + " " + string(r.Ports)
}

func orderedTexts(rules policy.Rules) []string {
	var out []string
	for r := range rules.All() {
		out = append(out, orderedText(r))
	}
	return out
}

// cluster makes a cluster policy at random.
func (d netDice) cluster(name string) *v1alpha1.ClusterFQDNNetworkPolicy {
	p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &p.Spec
	spec.Tier = roll(d, v1alpha1.TierAdmin, v1alpha1.TierBaseline)
	spec.Priority = ptr(int32(d.IntN(3)))
	switch d.IntN(8) {
	case 0:
		spec.Subject.Namespaces = &metav1.LabelSelector{}
	case 1, 2:
		spec.Subject.Namespaces = d.spaces()
	case 3:
		spec.Subject.Nodes = roll(d, nil, d.selector())
	default:
		spec.Subject.Pods = &v1alpha1.PodSubject{NamespaceSelector: d.spaces(), PodSelector: d.selector()}
	}
	if d.IntN(5) == 0 {
		spec.Enforcement = v1alpha1.EnforcementAudit
	}
	spec.DNS.Unmatched = roll(d, "", "", v1alpha1.UnmatchedNXDomain, v1alpha1.UnmatchedRefuse)
	spec.DNS.Denied = roll(d, "", v1alpha1.UnmatchedResolve, v1alpha1.UnmatchedRefuse)
	for range d.IntN(4) {
		rule := v1alpha1.ClusterEgressRule{Action: roll(d, v1alpha1.ActionAccept, v1alpha1.ActionDeny, v1alpha1.ActionPass)}
		if d.IntN(2) == 0 {
			var texts []string
			for range 1 + d.IntN(3) {
				texts = append(texts, roll(d, patternTexts...))
			}
			rule.Matches = aRule(texts...).Matches
		}
		for range d.IntN(3) {
			rule.Networks = append(rule.Networks, roll[v1alpha1.Network](d, "10.0.0.0/24", "10.0.0.4/30", "::/0", "192.0.2.0/24"))
		}
		if d.IntN(2) == 0 {
			rule.Ports = []v1alpha1.Port{{Port: ptr(roll[int32](d, 80, 443))}}
		}
		if d.IntN(15) == 0 {
			rule.Networks = append(rule.Networks, "10.0.0.0")
		}
		spec.Egress = append(spec.Egress, rule)
	}
	return p
}

// changeCluster changes one thing of the cluster policies, or of the rest.
func (d netDice) changeCluster(in Input) Input {
	in.ClusterPolicies = slices.Clone(in.ClusterPolicies)
	switch d.IntN(8) {
	case 0:
		if len(in.ClusterPolicies) > 0 {
			i := d.IntN(len(in.ClusterPolicies))
			in.ClusterPolicies = slices.Delete(in.ClusterPolicies, i, i+1)
		}
	case 1, 2, 3:
		p := d.cluster(fmt.Sprintf("c%d", d.IntN(12)))
		in.ClusterPolicies = slices.DeleteFunc(in.ClusterPolicies, func(o *v1alpha1.ClusterFQDNNetworkPolicy) bool { return o.Name == p.Name })
		in.ClusterPolicies = append(in.ClusterPolicies, p)
	case 4: // the same in other memory
		for i, p := range in.ClusterPolicies {
			in.ClusterPolicies[i] = p.DeepCopy()
		}
	case 5: // the same at another place
		if len(in.ClusterPolicies) > 0 {
			p := in.ClusterPolicies[d.IntN(len(in.ClusterPolicies))].DeepCopy()
			p.Spec.Priority = ptr(int32(d.IntN(3)))
			in.ClusterPolicies = slices.DeleteFunc(in.ClusterPolicies, func(o *v1alpha1.ClusterFQDNNetworkPolicy) bool { return o.Name == p.Name })
			in.ClusterPolicies = append(in.ClusterPolicies, p)
		}
	default:
		return d.change(in)
	}
	return in
}
