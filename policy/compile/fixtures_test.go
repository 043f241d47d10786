package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func ptr[T any](v T) *T { return &v }

// aPolicy selects the pods of shop that have the label app of that value; "" selects all.
func aPolicy(name, app string, rules ...v1alpha1.EgressRule) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if app != "" {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	}
	p.Spec.Egress = rules
	return p
}

// aRule has a name for each text without a wildcard and a pattern for the others.
func aRule(texts ...string) v1alpha1.EgressRule {
	return v1alpha1.EgressRule{Matches: policytest.Matches(texts...)}
}

func on(r v1alpha1.EgressRule, ports ...v1alpha1.Port) v1alpha1.EgressRule {
	r.Ports = ports
	return r
}

func tcp(port int32) v1alpha1.Port {
	return v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolTCP), Port: ptr(port)}
}

// aPod is a pod of shop with the label app.
func aPod(name, app string, ips ...string) policy.Pod {
	p := policytest.Pod(name, strings.Join(ips, " "))
	p.Labels["app"] = app
	return p
}

func compile(pods []policy.Pod, policies ...*v1alpha1.FQDNNetworkPolicy) *policy.Snapshot {
	return New().Compile(Input{Policies: policies, Pods: pods})
}

// matchPaths returns "policy path" of each match of the name.
func matchPaths(d *policy.Decision) []string {
	var paths []string
	for _, m := range d.Matches {
		paths = append(paths, m.Policy+" "+m.Path)
	}
	return paths
}

var aCluster = policytest.ClusterPolicy

// orderedText returns a rule of any tier in one line.
func orderedText(r *policy.Rule) string {
	text := fmt.Sprintf("%v %s %s %v", r.Tier, r.Policy, r.Path, r.Action)
	if r.Broken {
		text += " broken"
	}
	if r.Audit {
		text += " audit"
	}
	if r.ServerName {
		text += " " + string(r.ID)
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
	case 3: // none: the policy is invalid
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
		if d.IntN(3) == 0 { // of many rules it breaks
			rule.Ports, rule.ServerName = []v1alpha1.Port{tcp(443)}, v1alpha1.ServerNameRequire
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

// aNet reads the spec of a NetworkPolicy; it is shop's unless the name has a namespace.
func aNet(t testing.TB, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	n := &networkingv1.NetworkPolicy{}
	fatal.If(t, yaml.UnmarshalStrict([]byte(spec), &n.Spec), spec)
	n.Namespace, n.Name = "shop", name
	if space, rest, found := strings.Cut(name, "/"); found {
		n.Namespace, n.Name = space, rest
	}
	return n
}

// spaces are the namespaces of the tests, with their labels.
func spaces() map[string]map[string]string {
	return map[string]map[string]string{
		"shop": {corev1.LabelMetadataName: "shop", "team": "a"}, "bank": {corev1.LabelMetadataName: "bank", "team": "b"},
		"lone": {corev1.LabelMetadataName: "lone"},
	}
}

// farPod is a pod of another node: namespace/name, labels as "app=db,tier=x", addresses.
func farPod(name, set string, ips ...string) *policy.Pod {
	space, rest, _ := strings.Cut(name, "/")
	p := &policy.Pod{PodRef: policy.PodRef{Namespace: space, Name: rest, UID: "uid-" + name}, Labels: map[string]string{}, NodeName: "far", Phase: "Running"}
	for _, pair := range strings.Split(set, ",") {
		if k, v, found := strings.Cut(pair, "="); found {
			p.Labels[k] = v
		}
	}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

func withPort(p *policy.Pod, name string, proto policy.Protocol, port uint16) *policy.Pod {
	p.Ports = append(p.Ports, policy.NamedPort{Name: name, Protocol: proto, Port: port})
	return p
}

// besideInput is pod web of shop, selected by a policy without rules, beside NetworkPolicies.
func besideInput(remote []*policy.Pod, nets ...*networkingv1.NetworkPolicy) Input {
	in := Input{Policies: nil, Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Remote: remote, NetworkPolicies: nets}
	in.Policies = append(in.Policies, aPolicy("closed", ""))
	return in
}

// setTexts returns each peer set as one line.
func setTexts(s *policy.Snapshot) []string {
	var out []string
	for _, set := range s.PeerSets {
		var has []string
		for _, a := range set.Addrs {
			has = append(has, a.String())
		}
		for _, n := range set.Networks {
			has = append(has, n.String())
		}
		for _, p := range set.Ports {
			has = append(has, fmt.Sprintf("%v:%v/%d", p.Addr, p.Protocol, p.Port))
		}
		out = append(out, fmt.Sprintf("%d %s = %s", set.Kind, set.Key, strings.Join(has, " ")))
	}
	return out
}

// ruleTexts returns each of a view's peer rules as one line.
func ruleTexts(v *policy.View) []string {
	var out []string
	for _, r := range v.PeerRules() {
		out = append(out, fmt.Sprintf("%d %s | %s | %s %s", r.Peer.Kind, r.Peer.Key, r.Ports, r.Policy, r.Path))
	}
	return out
}

// peersAt returns the rules with peers that match what is reached.
func peersAt(s *policy.Snapshot, v *policy.View, a netip.Addr, proto policy.Protocol, port uint16) (out []*policy.Rule) {
	f := policy.Flow{Protocol: proto, Reached: netip.AddrPortFrom(a, port), Would: true}
	for _, step := range policy.Steps(v, s, &f) {
		if step.Ports.Contains(proto, port) {
			out = append(out, step.Rule)
		}
	}
	return out
}

// problemTexts returns the problems as "object reason path: message".
func problemTexts(s *policy.Snapshot) []string {
	var out []string
	for _, p := range s.Problems {
		out = append(out, fmt.Sprintf("%s %s %s: %s", p.Object, p.Reason, p.Path, p.Message))
	}
	return out
}

// allows returns what of "ADDRESS PROTOCOL PORT" a snapshot allows its first view.
func allows(s *policy.Snapshot, asked ...string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(q string) bool {
		var a, proto string
		var port uint16
		if _, err := fmt.Sscan(q, &a, &proto, &port); err != nil {
			panic(err)
		}
		protocols := map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": 1}
		return len(peersAt(s, s.Views[0], netip.MustParseAddr(a), protocols[proto], port)) == 0
	})
}

func netPort(proto corev1.Protocol, port *intstr.IntOrString, end *int32) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Port: port, EndPort: end}
	if proto != "" {
		p.Protocol = &proto
	}
	return p
}

func labelled(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}
